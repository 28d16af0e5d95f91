#include "devices/cpu/kernels/patches.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

template <>
std::vector<const PatchKernels<float>*> usable_patch_kernels<float>() {
  std::vector<const PatchKernels<float>*> usable;
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx2()) usable.push_back(&kAvx2Patches);
  if (may_use_avx512()) usable.push_back(&kAvx512Patches);
#endif
  return usable;
}

template <>
std::vector<const PatchKernels<std::uint16_t>*> usable_patch_kernels<std::uint16_t>() {
  std::vector<const PatchKernels<std::uint16_t>*> usable;
#if defined(TROUPE_KERNELS_X86)
  if (may_use_avx512()) usable.push_back(&kAvx512Bf16Patches);
#endif
  return usable;
}

}  // namespace troupe::cpu
