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

#define TROUPE_CUBLASLT_SAME(member, symbol, Returned, ...) \
  static_assert(detail::SameFunction<decltype(Library::member), decltype(&::symbol)>::value, #symbol);
TROUPE_CUBLASLT_ENTRY_POINTS(TROUPE_CUBLASLT_SAME)
#undef TROUPE_CUBLASLT_SAME

TROUPE_SAME_VALUE(Status::success, CUBLAS_STATUS_SUCCESS)
TROUPE_SAME_VALUE(Status::not_initialized, CUBLAS_STATUS_NOT_INITIALIZED)
TROUPE_SAME_VALUE(Status::alloc_failed, CUBLAS_STATUS_ALLOC_FAILED)
TROUPE_SAME_VALUE(Status::invalid_value, CUBLAS_STATUS_INVALID_VALUE)
TROUPE_SAME_VALUE(Status::arch_mismatch, CUBLAS_STATUS_ARCH_MISMATCH)
TROUPE_SAME_VALUE(Status::execution_failed, CUBLAS_STATUS_EXECUTION_FAILED)
TROUPE_SAME_VALUE(Status::internal_error, CUBLAS_STATUS_INTERNAL_ERROR)
TROUPE_SAME_VALUE(Status::not_supported, CUBLAS_STATUS_NOT_SUPPORTED)
TROUPE_SAME_VALUE(Type::f32, CUDA_R_32F)
TROUPE_SAME_VALUE(Type::f16, CUDA_R_16F)
TROUPE_SAME_VALUE(Type::bf16, CUDA_R_16BF)
TROUPE_SAME_VALUE(Compute::f32, CUBLAS_COMPUTE_32F)
TROUPE_SAME_VALUE(Compute::tf32, CUBLAS_COMPUTE_32F_FAST_TF32)
TROUPE_SAME_VALUE(Transposition::none, CUBLAS_OP_N)
TROUPE_SAME_VALUE(Transposition::transposed, CUBLAS_OP_T)
TROUPE_SAME_VALUE(Epilogue::none, CUBLASLT_EPILOGUE_DEFAULT)
TROUPE_SAME_VALUE(Epilogue::relu, CUBLASLT_EPILOGUE_RELU)
TROUPE_SAME_VALUE(Epilogue::bias, CUBLASLT_EPILOGUE_BIAS)
TROUPE_SAME_VALUE(Epilogue::relu_bias, CUBLASLT_EPILOGUE_RELU_BIAS)
TROUPE_SAME_VALUE(Epilogue::relu_mask, CUBLASLT_EPILOGUE_RELU_AUX)
TROUPE_SAME_VALUE(Epilogue::relu_bias_mask, CUBLASLT_EPILOGUE_RELU_AUX_BIAS)
TROUPE_SAME_VALUE(Epilogue::relu_gradient, CUBLASLT_EPILOGUE_DRELU)
TROUPE_SAME_VALUE(Epilogue::sums_of_b, CUBLASLT_EPILOGUE_BGRADB)
TROUPE_SAME_VALUE(Reduction::none, CUBLASLT_REDUCTION_SCHEME_NONE)
TROUPE_SAME_VALUE(Reduction::in_f32, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
TROUPE_SAME_VALUE(DescAttribute::transposition_a, CUBLASLT_MATMUL_DESC_TRANSA)
TROUPE_SAME_VALUE(DescAttribute::transposition_b, CUBLASLT_MATMUL_DESC_TRANSB)
TROUPE_SAME_VALUE(DescAttribute::epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE)
TROUPE_SAME_VALUE(DescAttribute::bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
TROUPE_SAME_VALUE(DescAttribute::mask_pointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
TROUPE_SAME_VALUE(DescAttribute::mask_stride, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
TROUPE_SAME_VALUE(LayoutAttribute::batches, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
TROUPE_SAME_VALUE(LayoutAttribute::batch_stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
TROUPE_SAME_VALUE(PreferenceAttribute::workspace_bytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
TROUPE_SAME_VALUE(PreferenceAttribute::reductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
TROUPE_SAME_VALUE(PreferenceAttribute::alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
TROUPE_SAME_VALUE(PreferenceAttribute::alignment_b, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
TROUPE_SAME_VALUE(PreferenceAttribute::alignment_c, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
TROUPE_SAME_VALUE(PreferenceAttribute::alignment_d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
#define TROUPE_SAME_PLACE(our, their)                                                       \
  static_assert(offsetof(Choice, our) == offsetof(cublasLtMatmulHeuristicResult_t, their)); \
  static_assert(sizeof(Choice::our) == sizeof(cublasLtMatmulHeuristicResult_t::their));
TROUPE_SAME_PLACE(algorithm, algo)
TROUPE_SAME_PLACE(workspace_bytes, workspaceSize)
TROUPE_SAME_PLACE(state, state)
TROUPE_SAME_PLACE(waves, wavesCount)
TROUPE_SAME_PLACE(reserved, reserved)

}  // namespace
}  // namespace cuda::lt
}  // namespace troupe
