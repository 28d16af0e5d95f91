#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {
namespace {
#include "devices/cpu/kernels/loops.inc"
}  // namespace

const Kernels kAvx512Kernels{"AVX-512",
                             update,
                             measure,
                             add,
                             add_bf16,
                             weighted_delta,
                             add_squares,
                             relu_f32,
                             relu_bf16,
                             mask_f32,
                             mask_bf16,
                             widen,
                             round,
                             round_with_residual,
                             exp_sum,
                             add_widened,
                             column_sums,
                             column_squares,
                             column_products,
                             scale_columns,
                             center_gradient,
                             gelu<float>,
                             gelu<std::uint16_t>,
                             gelu_slope<float>,
                             gelu_slope<std::uint16_t>};

}  // namespace troupe::cpu
