#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/reader_counts.hpp"

namespace troupe {

/// A ReLU that alone reads what one dense layer puts out, and is alone read by another dense layer of as many products:
/// the product that gives the gradient to what it has put out can give the gradient to what it has read instead.
struct FusedReluGradient {
  std::uint32_t before = 0, relu = 0, after = 0;  // layers
};

/// Those of a graph whose gradients are computed, by layer.
inline std::vector<FusedReluGradient> fused_relu_gradients(const Graph& graph) {
  const std::vector<std::uint32_t> readers = reader_counts(graph);
  const auto fields = static_cast<std::uint32_t>(graph.fields().size());
  // Of the layer whose output this one alone reads; null: there is none.
  const auto read_by = [&](std::uint32_t layer) -> const Operation* {
    const std::uint32_t tensor = graph.inputs_of(layer).front();
    return tensor < fields || readers[tensor] != 1 ? nullptr : &graph.layers()[tensor - fields].operation;
  };
  std::vector<FusedReluGradient> found;
  for (std::uint32_t after = 0; after < graph.layers().size(); ++after) {
    const auto* const dense = std::get_if<Dense>(&graph.layers()[after].operation);
    if (dense == nullptr) continue;
    const Operation* const curve = read_by(after);
    if (curve == nullptr || !std::holds_alternative<Relu>(*curve)) continue;
    const std::uint32_t relu = graph.inputs_of(after).front() - fields;
    const Operation* const product = read_by(relu);
    if (product == nullptr || !std::holds_alternative<Dense>(*product)) continue;
    const std::uint32_t written = graph.inputs_of(relu).front();
    const Shape& shape = graph.shape_of(written);
    const bool has_same_rows = !dense->flatten || shape.count_elements() == shape.extents.back();
    if (has_same_rows && graph.is_trained(written)) found.push_back({written - fields, relu, after});
  }
  return found;
}

/// Bits from one row of units to the next in the mask of a ReLU, as cuBLASLt has it: each is set where the ReLU has let
/// an element pass.
constexpr std::uint64_t relu_mask_stride(std::uint64_t units) noexcept {
  constexpr std::uint64_t kMultiple = 128;
  return (units + kMultiple - 1) / kMultiple * kMultiple;
}
/// Of such a ReLU that puts out `rows` times `shape`.
inline std::uint64_t relu_mask_bytes(std::uint64_t rows, const Shape& shape) noexcept {
  const std::uint64_t units = shape.extents.back();
  return rows * (shape.count_elements() / units) * relu_mask_stride(units) / 8;
}

}  // namespace troupe
