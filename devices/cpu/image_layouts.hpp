#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe::cpu {

/// Which tensors of the graph lie in blocks of 16 channels, [rows, channels / 16, height, width, 16], by their numbers
/// in `same` (ProgramBuilder::tensor_of); the others lie as they came, height by width by channels. Blocks are what
/// Winograd's convolutions read and write. In a graph with one of these, all tensors have them that may: where each
/// layer that touches them, or one that must lie as they do, can do with blocks.
std::vector<bool> tensors_in_blocks(const Graph& graph, const std::vector<std::uint32_t>& same, std::uint32_t rows);

}  // namespace troupe::cpu
