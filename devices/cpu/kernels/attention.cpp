#include "devices/cpu/kernels/attention.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

std::vector<const AttentionKernels*> usable_attention_kernels() {
  std::vector<const AttentionKernels*> usable{&kBaselineAttention};
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (may_use_avx2() && __builtin_cpu_supports("fma")) usable.push_back(&kAvx2Attention);
  if (may_use_avx512()) usable.push_back(&kAvx512Attention);
#endif
  return usable;
}

}  // namespace troupe::cpu
