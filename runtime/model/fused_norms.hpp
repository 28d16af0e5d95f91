#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/reader_counts.hpp"

namespace troupe {

/// A batch norm and the ReLU that alone reads what it puts out, or the sum of that and another tensor: they can be
/// computed at once, so that what lies between them is never written.
struct FusedNorm {
  std::uint32_t norm = 0, relu = 0;  // layers
  struct Sum {
    std::uint32_t layer = 0;
    std::uint32_t other = 0;  // the tensor that is added
  };
  std::optional<Sum> sum{};
};

/// Those of a graph, by ReLU. Of a sum of two norms the later one.
inline std::vector<FusedNorm> fused_norms(const Graph& graph) {
  const std::vector<std::uint32_t> readers = reader_counts(graph);
  const auto fields = static_cast<std::uint32_t>(graph.fields().size());
  const auto kind = [&](std::uint32_t layer) -> const Operation& { return graph.layers()[layer].operation; };
  // The layer that writes a tensor, where that is alone read by one layer.
  const auto only_for_one = [&](std::uint32_t tensor) -> std::optional<std::uint32_t> {
    if (tensor < fields || readers[tensor] != 1) return std::nullopt;
    return tensor - fields;
  };
  const auto norm_for_one = [&](std::uint32_t tensor) -> std::optional<std::uint32_t> {
    const auto layer = only_for_one(tensor);
    return layer && std::holds_alternative<BatchNorm>(kind(*layer)) ? layer : std::nullopt;
  };
  std::vector<FusedNorm> found;
  for (std::uint32_t relu = 0; relu < graph.layers().size(); ++relu) {
    if (!std::holds_alternative<Relu>(kind(relu))) continue;
    const std::uint32_t read = graph.inputs_of(relu).front();
    if (const auto norm = norm_for_one(read)) found.push_back({*norm, relu});
    const auto add = only_for_one(read);
    if (!add || !std::holds_alternative<Add>(kind(*add)) || graph.inputs_of(*add).size() != 2) continue;
    const std::uint32_t a = graph.inputs_of(*add)[0], b = graph.inputs_of(*add)[1];
    const auto norm_a = norm_for_one(a), norm_b = norm_for_one(b);
    if (norm_a && (!norm_b || *norm_a > *norm_b))
      found.push_back({*norm_a, relu, FusedNorm::Sum{*add, b}});
    else if (norm_b)
      found.push_back({*norm_b, relu, FusedNorm::Sum{*add, a}});
  }
  return found;
}

}  // namespace troupe
