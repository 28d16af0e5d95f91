#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe::detail {
namespace {
#include "runtime/data/detail/pixel_loops.inc"
}  // namespace

const PixelKernels kAvx512PixelKernels{"AVX-512", to_f32, to_bf16, blend_rows, blend_pixels, mix_colors};

}  // namespace troupe::detail
