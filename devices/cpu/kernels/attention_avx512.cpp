#include "devices/cpu/kernels/attention.hpp"

namespace troupe::cpu {
namespace {

/// Elements of a vector, and the largest number of vectors of columns in a block of a product.
constexpr std::size_t kLanes = 16, kWide = 4;

#include "devices/cpu/kernels/attention.inc"

}  // namespace

const AttentionKernels kAvx512Attention{
    "own:attention_avx512", room_elements, {forward<float>, backward<float>}, {forward<Half>, backward<Half>}};

}  // namespace troupe::cpu
