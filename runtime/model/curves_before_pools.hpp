#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/reader_counts.hpp"

namespace troupe {

/// A ReLU, tanh or sigmoid that alone reads what a convolution puts out, and that a max pool alone reads. None of the
/// three falls anywhere, so the pool can apply it to the largest elements alone, and its slope follows from them.
struct CurveBeforePool {
  std::uint32_t curve = 0, pool = 0;  // layers
};

/// Those of a graph, by layer.
inline std::vector<CurveBeforePool> curves_before_pools(const Graph& graph) {
  const std::vector<std::uint32_t> readers = reader_counts(graph);
  const auto fields = static_cast<std::uint32_t>(graph.fields().size());
  std::vector<CurveBeforePool> found;
  for (std::uint32_t pool = 0; pool < graph.layers().size(); ++pool) {
    if (!std::holds_alternative<MaxPool>(graph.layers()[pool].operation)) continue;
    const std::uint32_t pooled = graph.inputs_of(pool).front();
    if (pooled < fields || readers[pooled] != 1) continue;
    const std::uint32_t curve = pooled - fields;
    const Operation& operation = graph.layers()[curve].operation;
    if (!std::holds_alternative<Relu>(operation) && !std::holds_alternative<Tanh>(operation) &&
        !std::holds_alternative<Sigmoid>(operation))
      continue;
    const std::uint32_t read = graph.inputs_of(curve).front();
    if (read < fields || !std::holds_alternative<Conv2d>(graph.layers()[read - fields].operation)) continue;
    if (readers[read] == 1) found.push_back({curve, pool});
  }
  return found;
}

}  // namespace troupe
