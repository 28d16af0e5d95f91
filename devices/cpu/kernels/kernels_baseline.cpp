#include "devices/cpu/kernels/kernels.hpp"

namespace troupe::cpu {
namespace {
#include "devices/cpu/kernels/loops.inc"
}  // namespace

const Kernels kBaselineKernels{"baseline", update, add, weighted_delta, add_squares, mask_f32, mask_bf16, widen, round};

}  // namespace troupe::cpu
