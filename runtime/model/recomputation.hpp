#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// The ranges of layers that `texts` name, ascending. Each text is one of
///   "block_1"           the layer of this name, or all layers whose names begin with "block_1."
///   "block_1..block_4"  from the first layer of the one to the last layer of the other
///   "segments:4"        alone: the layers before the first loss in so many ranges with about as many elements, cut
///                       where few tensors cross, of which the last one is left out: its backward pass comes at once
/// Throws Error{invalid} naming the text for layers that there are not, ranges that overlap or end before they begin,
/// and ranges that contain a loss.
std::vector<LayerRange> recomputed_ranges(const Graph& graph, std::span<const std::string> texts);

}  // namespace troupe
