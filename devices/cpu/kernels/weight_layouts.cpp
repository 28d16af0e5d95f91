#include "devices/cpu/kernels/weight_layouts.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

const WeightLayoutKernels* usable_weight_layouts() {
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx512()) return &kAvx512WeightLayouts;
#endif
  return nullptr;
}

}  // namespace troupe::cpu
