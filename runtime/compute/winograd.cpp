#include "runtime/compute/winograd.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::uint64_t kTile = 4;            // positions per side that are computed together
constexpr std::uint64_t kTileProducts = 36;   // for one input channel and one filter
constexpr std::uint64_t kPlaceProducts = 9;   // of the direct algorithm, likewise
constexpr std::uint64_t kBlockChannels = 16;  // implementations process this many channels at once

std::uint64_t tiles_of(const Shape& output) {
  return ((output.extents[0] + kTile - 1) / kTile) * ((output.extents[1] + kTile - 1) / kTile);
}
std::uint64_t direct_products(const Shape& output) { return kPlaceProducts * output.extents[0] * output.extents[1]; }

}  // namespace

bool gains_by_winograd(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows) {
  constexpr Size2 kOne{1, 1}, kThree{3, 3};
  if (conv.kernel != kThree || conv.stride != kOne || conv.dilation != kOne || conv.groups != 1) return false;
  if (conv.padding.height > 1 || conv.padding.width > 1) return false;
  // Measured with oneDNN 2.6 on one core of a Zen 4, forward and both gradients: with 16 channels it is as fast as the
  // direct algorithm, with 32 channels 1.7 times, with 64 2.2 times as fast. If tiles of 4 x 4 cover an image badly (9
  // x 9) it is 1.1 times as fast. With 512 channels and 16 tiles in all, the transforms of the weights make it slower
  // (0.8 times; with 128 tiles 1.8 times).
  constexpr std::uint64_t kLeastChannels = 32, kLeastTiles = 64;
  const std::uint64_t tiles = tiles_of(output);
  return input.extents[2] % kBlockChannels == 0 && conv.filters % kBlockChannels == 0 &&
         input.extents[2] >= kLeastChannels && conv.filters >= kLeastChannels && rows * tiles >= kLeastTiles &&
         direct_products(output) >= 2 * kTileProducts * tiles;
}

double winograd_time_part(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows) {
  // The cost of transforms, in direct products: of images, for each position of a tile in each channel and filter; of
  // weights, for each pair of a channel and a filter. So with 32 channels this is 1.6 times as fast as the direct
  // algorithm, with 64 2.3 times, and with 512 channels and 128 tiles 2.2 times.
  constexpr double kImageTransform = 54 * kTile * kTile, kWeightsTransform = 24 * 144;
  const double tiles = static_cast<double>(tiles_of(output));
  const double channels = static_cast<double>(input.extents[2]), filters = conv.filters;
  const double products = static_cast<double>(kTileProducts) * tiles * channels * filters;
  const double images = kImageTransform * tiles * (channels + filters);
  const double weights = kWeightsTransform * channels * filters / rows;
  return std::min(1.0,
                  (products + images + weights) / (static_cast<double>(direct_products(output)) * channels * filters));
}

}  // namespace troupe
