#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe::detail {
namespace {
#include "runtime/data/detail/pixel_loops.inc"

void blend_down(std::int16_t* to, const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights,
                std::size_t count_rows, std::size_t count) {
  blend_down_from(0, to, rows, stride, weights, count_rows, count);
}

void blend_across(std::int16_t* to, const std::int16_t* from, const AcrossWeights& across) {
  blend_across_from(0, to, from, across);
}

}  // namespace

const PixelKernels kBaselinePixelKernels{"baseline",   to_f32,     to_bf16,    blend_down, blend_across,
                                         merge_colors, merge_luma, mix_colors, false};

}  // namespace troupe::detail
