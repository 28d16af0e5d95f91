#include "devices/cpu/kernels/one_channel_gradient.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kLanes = 8, kSums = 12;

#include "devices/cpu/kernels/one_channel_gradient.inc"

}  // namespace

const OneChannelGradient kAvx2OneChannelGradient{"own:one_channel_avx2", add};

}  // namespace troupe::cpu
