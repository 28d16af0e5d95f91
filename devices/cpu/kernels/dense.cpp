#include "devices/cpu/kernels/dense.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

std::vector<const DenseKernels*> usable_dense_kernels([[maybe_unused]] bool bf16) {
  std::vector<const DenseKernels*> usable;
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (!bf16 && may_use_avx2() && __builtin_cpu_supports("fma")) usable.push_back(&kAvx2DenseKernels);
  if (!bf16 && may_use_avx512()) usable.push_back(&kAvx512DenseKernels);
  if (bf16 && may_use_avx512() && __builtin_cpu_supports("avx512bf16")) usable.push_back(&kBf16DenseKernels);
#endif
  return usable;
}

}  // namespace troupe::cpu
