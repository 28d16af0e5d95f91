#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe::cpu {

/// Channels of a block.
inline constexpr std::uint64_t kBlockChannels = 16;

/// Which tensors of the graph are stored in blocks of 16 channels, [rows, channels / 16, height, width, 16], by their
/// numbers in `same` (ProgramBuilder::tensor_of); the others are stored as height by width by channels. Winograd's
/// convolutions read and write blocks. Where there is such a convolution among convolutions of images of one size,
/// behind one another, their tensors are in blocks if every layer that uses one, or that uses a tensor which must have
/// the same layout, supports blocks. A tensor of one block of channels is the same bytes in both layouts and counts as
/// not in blocks.
std::vector<bool> tensors_in_blocks(const Graph& graph, const std::vector<std::uint32_t>& same, std::uint32_t rows);

}  // namespace troupe::cpu
