#include "devices/cpu/kernels/norms.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

std::vector<const NormKernelSet*> usable_norm_kernels() {
  std::vector<const NormKernelSet*> usable;
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (may_use_avx2() && __builtin_cpu_supports("fma")) usable.push_back(&kAvx2Norms);
  if (may_use_avx512()) usable.push_back(&kAvx512Norms);
  if (may_use_avx512() && __builtin_cpu_supports("avx512bf16")) usable.push_back(&kAvx512Bf16Norms);
#endif
  return usable;
}

}  // namespace troupe::cpu
