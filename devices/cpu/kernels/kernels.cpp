#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable{&kBaselineKernels};
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx2()) usable.push_back(&kAvx2Kernels);
  if (may_use_avx512()) usable.push_back(&kAvx512Kernels);
#endif
  return usable;
}

const Kernels& best_kernels() { return *usable_kernels().back(); }

}  // namespace troupe::cpu
