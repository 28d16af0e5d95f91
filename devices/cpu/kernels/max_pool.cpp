#include "devices/cpu/kernels/max_pool.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

template <>
std::vector<const MaxPoolKernels<float>*> usable_max_pools<float>() {
  std::vector<const MaxPoolKernels<float>*> usable;
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx2()) usable.push_back(&kAvx2MaxPool);
  if (may_use_avx512()) usable.push_back(&kAvx512MaxPool);
#endif
  return usable;
}

template <>
std::vector<const MaxPoolKernels<std::uint16_t>*> usable_max_pools<std::uint16_t>() {
  std::vector<const MaxPoolKernels<std::uint16_t>*> usable;
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx512()) usable.push_back(&kAvx512Bf16MaxPool);
#endif
  return usable;
}

std::vector<const OverlappingMaxPool*> usable_overlapping_max_pools() {
  std::vector<const OverlappingMaxPool*> usable;
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx2()) usable.push_back(&kAvx2OverlappingMaxPool);
  if (may_use_avx512()) usable.push_back(&kAvx512OverlappingMaxPool);
#endif
  return usable;
}

}  // namespace troupe::cpu
