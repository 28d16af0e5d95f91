#include "devices/cpu/kernels/one_channel_gradient.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kLanes = 16, kSums = 25;

#include "devices/cpu/kernels/one_channel_gradient.inc"

}  // namespace

const OneChannelGradient kAvx512OneChannelGradient{"own:one_channel_avx512", add};

}  // namespace troupe::cpu
