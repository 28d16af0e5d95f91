#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

constexpr std::size_t kMostSummands = 64;

LayerKind activation(std::string_view name, std::string_view help, Operation made) {
  return {.name = name,
          .help = help,
          .shape = "anything, kept",
          .made = std::move(made),
          .attributes = {},
          .infer = same_shape};
}

LayerResult infer_add(const LayerShapes& layer) {
  const Shape& first = layer.inputs.front();
  for (const Shape& other : layer.inputs) {
    TROUPE_CHECK(other == first, Code::invalid, layer.where, ": tensors of ", first.to_string(), " and ",
                 other.to_string(), " cannot be added");
  }
  return {first};
}

LayerResult infer_flatten(const LayerShapes& layer) {
  const std::uint64_t count = layer.inputs.front().count_elements();
  TROUPE_CHECK(static_cast<double>(count) <= kMostCounted, Code::invalid, layer.where, ": reads ",
               layer.inputs.front().to_string(), ", whose elements do not fit one extent");
  return {Shape{{static_cast<std::uint32_t>(count)}}};
}

}  // namespace

LayerKind relu_row() { return activation("relu", "max(x, 0).", Relu{}); }
LayerKind tanh_row() { return activation("tanh", "The hyperbolic tangent.", Tanh{}); }
LayerKind sigmoid_row() { return activation("sigmoid", "1 / (1 + e^-x).", Sigmoid{}); }
LayerKind gelu_row() {
  return activation("gelu", "x times the distribution function of N(0, 1) at x, by erf.", Gelu{});
}

LayerKind add_row() {
  return {.name = "add",
          .help = "The sum of two or more tensors, which `inputs` names.",
          .shape = "anything, kept",
          .least_inputs = 2,
          .most_inputs = kMostSummands,
          .made = Add{},
          .attributes = {},
          .infer = infer_add};
}

LayerKind flatten_row() {
  return {.name = "flatten",
          .help = "The same elements in one extent, in the order height, width, channels. `dense` does this by itself.",
          .shape = "anything to [elements]",
          .made = Flatten{},
          .attributes = {},
          .infer = infer_flatten};
}

}  // namespace troupe::detail
