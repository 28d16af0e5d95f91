#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe::cpu {

/// Whether a convolution is to be computed as Winograd's F(4 x 4, 3 x 3): Lavin and Gray 2016, Fast algorithms for
/// convolutional neural networks. It multiplies 36 numbers for 16 places instead of 144, and pays for that with
/// transforms of images and weights. `rows`: images of a batch.
bool gains_by_winograd(const Conv2d& conv, const Shape& input, const Shape& output, std::uint32_t rows);

/// Which tensors of the graph lie in blocks of 16 channels, [rows, channels / 16, height, width, 16], by their numbers
/// in `same` (ProgramBuilder::tensor_of); the others lie as they came, height by width by channels. Blocks are what
/// Winograd's convolutions read and write. In a graph with one of these, all tensors have them that may: where each
/// layer that touches them, or one that must lie as they do, can do with blocks.
std::vector<bool> tensors_in_blocks(const Graph& graph, const std::vector<std::uint32_t>& same, std::uint32_t rows);

}  // namespace troupe::cpu
