#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

// What we use of cuBLASLt (libcublasLt.so.12, libcublasLt.so.13), declared here so that everything builds where it is
// not installed. Binary compatible with cublasLt.h; cublaslt_api_check.cpp proves that where cublasLt.h is found.
struct cublasLtContext;
struct CUstream_st;

namespace troupe::cuda::lt {

enum class Status : unsigned {
  success = 0,
  not_initialized = 1,
  alloc_failed = 3,
  invalid_value = 7,
  arch_mismatch = 8,
  execution_failed = 13,
  internal_error = 14,
  not_supported = 15,
};
enum class Type : unsigned { f32 = 0, f16 = 2, bf16 = 14 };
/// f32: at least the precision of f32. tf32: operands may be rounded to TF32.
enum class Compute : unsigned { f32 = 68, tf32 = 77 };
enum class Transposition : std::int32_t { none = 0, transposed = 1 };
/// What happens to the sums before they are stored. bias: a vector of D's rows is added to each column. sums_of_b: the
/// sum over the inner extent of each column of op(B) is stored, too. ..._mask: a bit for each element is stored, too,
/// whether the ReLU lets it pass; relu_gradient: by such a mask, what did not pass becomes 0.
enum class Epilogue : std::uint32_t {
  none = 1,
  relu = 2,
  bias = 4,
  relu_bias = 6,
  relu_mask = 130,
  relu_bias_mask = 134,
  relu_gradient = 136,
  sums_of_b = 512,
};
/// How the parts of a product whose inner extent is cut are added up; bits. Of none, a product has one part.
enum class Reduction : std::uint32_t { none = 0, in_f32 = 2 };

/// mask_stride: bits of a mask from one column of D to the next, a multiple of 128.
enum class DescAttribute : unsigned {
  transposition_a = 3,
  transposition_b = 4,
  epilogue = 7,
  bias_pointer = 8,
  mask_pointer = 11,
  mask_stride = 12,
};
enum class LayoutAttribute : unsigned { batches = 5, batch_stride = 6 };
enum class PreferenceAttribute : unsigned {
  workspace_bytes = 1,
  reductions = 3,
  alignment_a = 5,
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8,
};

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

// X(member of Library, exported symbol, type of its result, parameters...): the only list of entry points.
// Library::load, the check against cublasLt.h and the stand-in are made from it.
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
#define TROUPE_CUBLASLT_MEMBER(member, symbol, Returned, ...) Returned (*member)(__VA_ARGS__) = nullptr;
  TROUPE_CUBLASLT_ENTRY_POINTS(TROUPE_CUBLASLT_MEMBER)
#undef TROUPE_CUBLASLT_MEMBER

  /// Opens `library` and finds every entry point; nothing of it is called. Without a value: `why` says which library or
  /// which symbol is missing.
  static std::optional<Library> load(std::string& why, const char* library);
};

}  // namespace troupe::cuda::lt
