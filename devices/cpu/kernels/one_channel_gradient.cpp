#include "devices/cpu/kernels/one_channel_gradient.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

std::vector<const OneChannelGradient*> usable_one_channel_gradients() {
  std::vector<const OneChannelGradient*> usable;
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (may_use_avx2() && __builtin_cpu_supports("fma")) usable.push_back(&kAvx2OneChannelGradient);
  if (may_use_avx512()) usable.push_back(&kAvx512OneChannelGradient);
#endif
  return usable;
}

}  // namespace troupe::cpu
