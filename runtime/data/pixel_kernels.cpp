#include "runtime/data/detail/pixel_kernels.hpp"

#include "runtime/base/cpu_isa.hpp"

namespace troupe::detail {

std::vector<const PixelKernels*> usable_pixel_kernels() {
  std::vector<const PixelKernels*> usable{&kBaselinePixelKernels};
#if defined(TROUPE_PIXEL_KERNELS_X86)
  if (may_use(CpuIsa::avx2)) usable.push_back(&kAvx2PixelKernels);
  if (may_use(CpuIsa::avx512)) usable.push_back(&kAvx512PixelKernels);
#endif
  return usable;
}

const PixelKernels& best_pixel_kernels() {
  static const PixelKernels& best = *usable_pixel_kernels().back();
  return best;
}

}  // namespace troupe::detail
