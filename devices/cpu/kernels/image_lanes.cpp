#include "devices/cpu/kernels/image_lanes.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

std::vector<const LaneKernels*> usable_lane_kernels([[maybe_unused]] bool bf16) {
  std::vector<const LaneKernels*> usable;
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (!bf16 && may_use_avx2() && __builtin_cpu_supports("fma")) usable.push_back(&kAvx2LaneKernels);
  if (!bf16 && may_use_avx512()) usable.push_back(&kAvx512LaneKernels);
  if (bf16 && may_use_avx512() && __builtin_cpu_supports("avx512bf16")) usable.push_back(&kBf16LaneKernels);
#endif
  return usable;
}

}  // namespace troupe::cpu
