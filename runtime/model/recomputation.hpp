#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// The ranges of layers named by `texts`, ascending. Each text is one of
///   "block_1"           the layer of this name, or all layers whose names begin with "block_1."
///   "block_1..block_4"  from the first layer of the one to the last layer of the other
///   "segments:4"        alone: that many ranges of about equal size of the layers before the first loss, cut where
///                       few tensors cross; the last range is left out, because its backward pass follows at once
/// Throws Error{invalid}, which names the text, for layers that do not exist, for ranges that overlap or end before
/// they begin, and for ranges that contain a loss.
std::vector<LayerRange> recomputed_ranges(const Graph& graph, std::span<const std::string> texts);

/// Whether ranks wait for each other in the layer (BatchNorm::synchronized).
bool is_synchronized(const Layer& layer) noexcept;
/// Why several ranks cannot compute such a layer again, for people.
std::string recomputes_synchronized(const Layer& layer);

/// The range that a text with names of layers stands for; nothing: there are no such layers, or it asks for segments.
std::optional<LayerRange> find_range(std::span<const Layer> layers, std::string_view text_of_range);

}  // namespace troupe
