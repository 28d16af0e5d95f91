#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/shared_library.hpp"

// What we use of cuBLASLt (libcublasLt.so.12, libcublasLt.so.13), declared here so that everything builds where it is
// not installed. Binary compatible with cublasLt.h; cublaslt_api_check.cpp proves that where cublasLt.h is found.
struct cublasLtContext;
struct CUstream_st;

namespace troupe::cuda::lt {

#define TROUPE_VALUES "devices/cuda/cublaslt_values.def"
#include "runtime/base/declare_values.inc"

// Only the library makes these and knows how long they are.
struct DescRecord {
  std::uint64_t data[8];
};
struct LayoutRecord {
  std::uint64_t data[8];
};
struct PreferenceRecord {
  std::uint64_t data[8];
};
using Handle = cublasLtContext*;
using Desc = DescRecord*;
using Layout = LayoutRecord*;
using Preference = PreferenceRecord*;
using StreamHandle = CUstream_st*;

struct Algorithm {
  std::uint64_t data[8];
};
struct Choice {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// The only list of entry points. Library::load, the check against cublasLt.h and the stand-in are made from it.
#define TROUPE_CUBLASLT_ENTRY_POINTS(X)                                                                                \
  X(get_version, cublasLtGetVersion, std::size_t, void)                                                                \
  X(get_status_string, cublasLtGetStatusString, const char*, Status status)                                            \
  X(create, cublasLtCreate, Status, Handle* handle)                                                                    \
  X(destroy, cublasLtDestroy, Status, Handle handle)                                                                   \
  X(desc_create, cublasLtMatmulDescCreate, Status, Desc* desc, Compute compute, Type scale)                            \
  X(desc_destroy, cublasLtMatmulDescDestroy, Status, Desc desc)                                                        \
  X(desc_set, cublasLtMatmulDescSetAttribute, Status, Desc desc, DescAttribute attribute, const void* value,           \
    std::size_t size_bytes)                                                                                            \
  X(layout_create, cublasLtMatrixLayoutCreate, Status, Layout* layout, Type type, std::uint64_t rows,                  \
    std::uint64_t columns, std::int64_t leading)                                                                       \
  X(layout_destroy, cublasLtMatrixLayoutDestroy, Status, Layout layout)                                                \
  X(layout_set, cublasLtMatrixLayoutSetAttribute, Status, Layout layout, LayoutAttribute attribute, const void* value, \
    std::size_t size_bytes)                                                                                            \
  X(preference_create, cublasLtMatmulPreferenceCreate, Status, Preference* preference)                                 \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy, Status, Preference preference)                                \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute, Status, Preference preference,                               \
    PreferenceAttribute attribute, const void* value, std::size_t size_bytes)                                          \
  X(choose, cublasLtMatmulAlgoGetHeuristic, Status, Handle handle, Desc desc, Layout a, Layout b, Layout c, Layout d,  \
    Preference preference, int most, Choice* choices, int* count)                                                      \
  X(multiply, cublasLtMatmul, Status, Handle handle, Desc desc, const void* alpha, const void* a, Layout layout_a,     \
    const void* b, Layout layout_b, const void* beta, const void* c, Layout layout_c, void* d, Layout layout_d,        \
    const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, StreamHandle stream)

/// cuBLASLt's entry points. A value: copies call the same library, which stays loaded until the process ends.
struct Library {
  TROUPE_ENTRIES(TROUPE_CUBLASLT_ENTRY_POINTS)
  /// Opens `library` and finds every entry point; nothing of it is called. Without a value: `why` says which library or
  /// which symbol is missing.
  static std::optional<Library> load(std::string& why, const char* library);
};

}  // namespace troupe::cuda::lt
