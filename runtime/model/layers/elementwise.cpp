#include <algorithm>

#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

constexpr std::size_t kMostSummands = 64;
constexpr std::size_t kMostFactors = 8;
constexpr std::size_t kMostParts = 64;
constexpr double kMostExtents = 8;

LayerKind activation(std::string_view name, std::string_view help, Operation made) {
  return {.name = name,
          .help = help,
          .shape = "anything, same shape",
          .made = std::move(made),
          .attributes = {},
          .infer = same_shape};
}

/// The result of a layer whose inputs have one shape, which is also the output's.
LayerResult one_shape(const LayerShapes& layer, std::string_view done) {
  const Shape& first = layer.inputs.front();
  for (const Shape& other : layer.inputs) {
    TROUPE_CHECK(other == first, Code::invalid, layer.where, ": tensors of ", first.to_string(), " and ",
                 other.to_string(), " cannot be ", done);
  }
  return {first};
}
LayerResult infer_add(const LayerShapes& layer) { return one_shape(layer, "added"); }
LayerResult infer_multiply(const LayerShapes& layer) { return one_shape(layer, "multiplied"); }

LayerResult infer_concat(const LayerShapes& layer) {
  const Shape& first = layer.inputs.front();
  std::uint64_t last = 0;
  for (const Shape& other : layer.inputs) {
    const auto& a = first.extents;
    const auto& b = other.extents;
    TROUPE_CHECK(a.size() == b.size() && std::equal(a.begin(), a.end() - 1, b.begin()), Code::invalid, layer.where,
                 ": tensors of ", first.to_string(), " and ", other.to_string(),
                 " cannot be concatenated; they may differ only in their last extent");
    last += b.back();
  }
  TROUPE_CHECK(static_cast<double>(last) <= kMostCounted, Code::invalid, layer.where, ": its ", layer.inputs.size(),
               " tensors have ", last, " channels together, which do not fit one extent");
  Shape all = first;
  all.extents.back() = static_cast<std::uint32_t>(last);
  return {all};
}

LayerResult infer_flatten(const LayerShapes& layer) {
  const std::uint64_t count = layer.inputs.front().count_elements();
  TROUPE_CHECK(static_cast<double>(count) <= kMostCounted, Code::invalid, layer.where, ": reads ",
               layer.inputs.front().to_string(), ", whose elements do not fit one extent");
  return {Shape{{static_cast<std::uint32_t>(count)}}};
}

LayerResult infer_transpose(const LayerShapes& layer) {
  const Shape& read = layer.inputs.front();
  const std::vector<std::uint32_t>& order = std::get<Transpose>(layer.operation).order;
  std::vector<bool> taken(read.extents.size());
  Shape output;
  for (const std::uint32_t extent : order) {
    if (extent >= taken.size() || taken[extent]) break;
    taken[extent] = true;
    output.extents.push_back(read.extents[extent]);
  }
  TROUPE_CHECK(output.extents.size() == taken.size() && order.size() == taken.size(), Code::invalid, layer.where,
               ": reads ", read.to_string(), "; its order, ", Shape{order}.to_string(), ", must have each of 0 to ",
               taken.size() - 1, " once");
  return {std::move(output)};
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
          .shape = "anything, same shape",
          .least_inputs = 2,
          .most_inputs = kMostSummands,
          .made = Add{},
          .attributes = {},
          .infer = infer_add};
}

LayerKind multiply_row() {
  return {.name = "multiply",
          .help = "The product of two or more tensors, element by element, which `inputs` names.",
          .shape = "anything, same shape",
          .least_inputs = 2,
          .most_inputs = kMostFactors,
          .made = Multiply{},
          .attributes = {},
          .elsewhere = {"mul", "product"},
          .infer = infer_multiply};
}

LayerKind concat_row() {
  return {
      .name = "concat",
      .help = "Two or more tensors, which `inputs` names, concatenated in their last extent: the channels of images.",
      .shape = "tensors that differ only in the last extent, to one whose last extent is their sum",
      .least_inputs = 2,
      .most_inputs = kMostParts,
      .made = Concat{},
      .attributes = {},
      .elsewhere = {"concatenate", "cat"},
      .infer = infer_concat};
}

LayerKind transpose_row() {
  return {.name = "transpose",
          .help =
              "The same elements with the extents in another order: extent k of the output is extent `order[k]` of the "
              "input, counted from 0. [2, 0, 1] makes [channels, height, width] of an image. The samples of a batch "
              "stay as they are.",
          .shape = "[n0, n1, ...] to [n of order[0], n of order[1], ...]",
          .made = Transpose{},
          .attributes = {{"order",
                          slot_of<&Transpose::order>,
                          0,
                          kMostExtents - 1,
                          "the input's extents, each once, as in [2, 0, 1]",
                          true,
                          false,
                          {"perm", "permutation", "axes", "dims"}}},
          .elsewhere = {"permute", "transposition"},
          .infer = infer_transpose};
}

LayerKind flatten_row() {
  return {
      .name = "flatten",
      .help = "The same elements in one extent, in the order height, width, channels. `dense` does this automatically.",
      .shape = "anything to [elements]",
      .made = Flatten{},
      .attributes = {},
      .infer = infer_flatten};
}

}  // namespace troupe::detail
