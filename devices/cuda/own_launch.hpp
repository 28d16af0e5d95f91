#pragma once

#include <algorithm>
#include <cstdint>

#include "devices/cuda/gpu.hpp"
#include "devices/cuda/kernels/column_sums.hpp"
#include "devices/cuda/kernels/convolutions.hpp"

// Launches of kernels of ours apart from a replica's stream, and into how many parts their work is cut.
namespace troupe::cuda {

/// Blocks that a processor is to have, at least, where work is cut into parts for it.
inline constexpr std::uint64_t kBlocksOfProcessor = 2;

/// Likewise of a product in small tiles: as many as its registers leave room for.
template <class Args>
inline constexpr std::uint64_t kSmallBlocks = kBlocksOfProcessor;
template <>
inline constexpr std::uint64_t kSmallBlocks<ConvolveToWeightsArgs> = 3;

/// Cuts the inner extent of a product whose result is dense: each part has at least so many terms that adding the parts
/// up does not cost more than it gains.
template <class Args>
std::uint32_t parts_of(const ProductExtents& extents, std::uint32_t processors) noexcept {
  constexpr std::uint64_t kLeastTerms = 64;
  const std::uint64_t tiles = count_tiles(extents), most = std::max<std::uint64_t>(extents.inner / kLeastTerms, 1);
  if (tiles == 0) return 1;
  const std::uint64_t blocks = tile_shape(extents) == TileShape::small ? kSmallBlocks<Args> : kBlocksOfProcessor;
  const auto parts = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks * processors / tiles, 1, most));
  if (parts == 1) return 1;
  // Rounding to whole stretches may leave the last parts without any.
  const std::uint64_t terms = terms_of_part(extents, parts);
  return static_cast<std::uint32_t>((extents.inner + terms - 1) / terms);
}

/// For trials and measurements: `stream` is not that of a CudaStream, and `state` says that it has not failed.
template <class Args>
void launch_alone(const Gpu& gpu, StreamHandle stream, StreamState* state, Args& args, std::uint64_t items) {
  args.stream = state;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::uint64_t>((items + kBlockThreads - 1) / kBlockThreads, 1, std::uint64_t{8} * gpu.processors()));
  void* what = &args;
  TROUPE_CUDA(
      gpu.driver(),
      launch_kernel(gpu.function(kKernelOf<Args>), blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, &what, nullptr),
      "a kernel of a trial on ", gpu.name());
}

}  // namespace troupe::cuda
