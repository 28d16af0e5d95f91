#include "devices/cpu/kernels/panels.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::cpu {

std::vector<const PanelKernels*> usable_panel_kernels([[maybe_unused]] bool bf16) {
  std::vector<const PanelKernels*> usable;
#if defined(TROUPE_KERNELS_X86)
  __builtin_cpu_init();
  if (!bf16 && may_use_avx2() && __builtin_cpu_supports("fma")) usable.push_back(&kAvx2PanelKernels);
  if (!bf16 && may_use_avx512()) usable.push_back(&kAvx512PanelKernels);
  if (bf16 && may_use_avx512() && __builtin_cpu_supports("avx512bf16")) usable.push_back(&kBf16PanelKernels);
#endif
  return usable;
}

}  // namespace troupe::cpu
