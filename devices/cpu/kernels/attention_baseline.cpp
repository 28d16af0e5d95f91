#include "devices/cpu/kernels/attention.hpp"

namespace troupe::cpu {
namespace {

/// Elements of a vector, and the largest number of vectors of columns in a block of a product.
constexpr std::size_t kLanes = 4, kWide = 2;

#include "devices/cpu/kernels/attention.inc"

}  // namespace

const AttentionKernels kBaselineAttention{
    "own:attention_baseline", room_elements, {forward<float>, backward<float>}, {forward<Half>, backward<Half>}};

}  // namespace troupe::cpu
