// Compiled where cublasLt.h is found: proves that cublaslt_api.hpp says the same. There is nothing in it to run.
#include "devices/cuda/cublaslt_api.hpp"

#include <cublasLt.h>

#include "runtime/base/detail/same_binary.hpp"

namespace troupe {

template <>
inline constexpr bool detail::kKnownBySize<cuda::lt::DescRecord> = true;
template <>
inline constexpr bool detail::kKnownBySize<cuda::lt::LayoutRecord> = true;
template <>
inline constexpr bool detail::kKnownBySize<cuda::lt::PreferenceRecord> = true;

namespace cuda::lt {
namespace {

TROUPE_CUBLASLT_ENTRY_POINTS(TROUPE_SAME_ENTRY)
#define TROUPE_VALUES "devices/cuda/cublaslt_values.def"
#include "runtime/base/detail/compare_values.inc"

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
TROUPE_SAME_PLACE(Choice, algorithm, cublasLtMatmulHeuristicResult_t, algo)
TROUPE_SAME_PLACE(Choice, workspace_bytes, cublasLtMatmulHeuristicResult_t, workspaceSize)
TROUPE_SAME_PLACE(Choice, state, cublasLtMatmulHeuristicResult_t, state)
TROUPE_SAME_PLACE(Choice, waves, cublasLtMatmulHeuristicResult_t, wavesCount)
TROUPE_SAME_PLACE(Choice, reserved, cublasLtMatmulHeuristicResult_t, reserved)

}  // namespace
}  // namespace cuda::lt
}  // namespace troupe
