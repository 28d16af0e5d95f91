#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// Graph::count_readers() for every tensor, in time that grows with the number of layers: one call of count_readers()
/// takes as long.
inline std::vector<std::uint32_t> reader_counts(const Graph& graph) {
  std::vector<std::uint32_t> counts(graph.fields().size() + graph.layers().size());
  for (std::size_t layer = 0; layer < graph.layers().size(); ++layer)
    for (const std::uint32_t tensor : graph.inputs_of(layer)) ++counts[tensor];
  return counts;
}

}  // namespace troupe
