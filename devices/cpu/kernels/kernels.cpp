#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable{&kBaselineKernels};
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) usable.push_back(&kAvx2Kernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    usable.push_back(&kAvx512Kernels);
  }
#endif
  return usable;
}

const Kernels& best_kernels() { return *usable_kernels().back(); }

}  // namespace troupe::cpu
