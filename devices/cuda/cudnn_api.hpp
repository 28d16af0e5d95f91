#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/shared_library.hpp"

// What we use of cuDNN's graph interface (libcudnn.so.9), declared here so that everything builds where it is not
// installed. Binary compatible with cudnn_graph.h; cudnn_api_check.cpp proves that where cudnn_graph.h is found.
struct cudnnContext;
struct CUstream_st;

namespace troupe::cuda::dnn {

#define TROUPE_VALUES "devices/cuda/cudnn_values.def"
#include "runtime/base/declare_values.inc"

/// At least as many as any engine has.
inline constexpr std::int64_t kMostNotes = 32, kMostKnobs = 64;
/// A setting of an engine. Only the library knows its meaning: Troupe stores settings and passes them back.
enum class KnobType : unsigned {};

using Handle = cudnnContext*;
using Descriptor = void*;
using StreamHandle = CUstream_st*;

// The only list of entry points. Library::load, the check against cudnn_graph.h and the stand-in are made from it.
#define TROUPE_CUDNN_ENTRY_POINTS(X)                                                                                \
  X(get_version, cudnnGetVersion, std::size_t, void)                                                                \
  X(get_error_string, cudnnGetErrorString, const char*, Status status)                                              \
  X(create, cudnnCreate, Status, Handle* handle)                                                                    \
  X(destroy, cudnnDestroy, Status, Handle handle)                                                                   \
  X(set_stream, cudnnSetStream, Status, Handle handle, StreamHandle stream)                                         \
  X(descriptor_create, cudnnBackendCreateDescriptor, Status, DescriptorType type, Descriptor* descriptor)           \
  X(descriptor_destroy, cudnnBackendDestroyDescriptor, Status, Descriptor descriptor)                               \
  X(descriptor_finalize, cudnnBackendFinalize, Status, Descriptor descriptor)                                       \
  X(descriptor_set, cudnnBackendSetAttribute, Status, Descriptor descriptor, Attribute attribute, ElementType type, \
    std::int64_t count, const void* elements)                                                                       \
  X(descriptor_get, cudnnBackendGetAttribute, Status, Descriptor descriptor, Attribute attribute, ElementType type, \
    std::int64_t most, std::int64_t* count, void* elements)                                                         \
  X(execute, cudnnBackendExecute, Status, Handle handle, Descriptor plan, Descriptor pack)

/// cuDNN's entry points. A value: copies call the same library, which stays loaded until the process ends.
struct Library {
  TROUPE_ENTRIES(TROUPE_CUDNN_ENTRY_POINTS)
  /// Opens `library` and finds every entry point; nothing of it is called. Without a value: `why` says which library or
  /// which symbol is missing.
  static std::optional<Library> load(std::string& why, const char* library);
};

}  // namespace troupe::cuda::dnn
