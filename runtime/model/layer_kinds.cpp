#include "runtime/model/layer_kinds.hpp"

#include <algorithm>
#include <iomanip>

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"
#include "runtime/model/detail/layer_rows.hpp"

namespace troupe {
namespace {

/// The address of the attribute's value in `operation`, which is only read.
AttributeSlot value_of(const LayerAttribute& attribute, const Operation& operation) {
  return attribute.slot(const_cast<Operation&>(operation));
}

bool are_equal(const AttributeSlot& a, const AttributeSlot& b) {
  return std::visit([&](auto* value) { return *value == *std::get<decltype(value)>(b); }, a);
}

struct InRange {
  const LayerAttribute& attribute;
  bool operator()(const std::uint32_t* value) const { return attribute.contains(*value); }
  bool operator()(const std::int32_t* value) const { return attribute.contains(*value); }
  bool operator()(const double* value) const { return attribute.contains(*value); }
  bool operator()(const Size2* size) const {
    return attribute.contains(size->height) && attribute.contains(size->width);
  }
  bool operator()(const bool*) const { return true; }
  bool operator()(const std::vector<std::uint32_t>* list) const {
    return std::ranges::all_of(*list, [&](std::uint32_t number) { return attribute.contains(number); });
  }
};

/// Numbers as short as possible, or, with `exact`, in the form that texts of graphs have always had: plans and
/// checkpoints compare these texts.
struct AttributeText {
  bool exact = false;
  std::string operator()(const std::uint32_t* number) const { return std::to_string(*number); }
  std::string operator()(const std::int32_t* number) const { return std::to_string(*number); }
  std::string operator()(const double* number) const {
    if (!exact) return fmt::format("{}", *number);
    TextStream out;
    out << std::setprecision(17) << *number;
    return out.str();
  }
  std::string operator()(const Size2* size) const { return text(size->height, 'x', size->width); }
  std::string operator()(const bool* on) const { return *on ? "true" : "false"; }
  std::string operator()(const std::vector<std::uint32_t>* list) const { return Shape{*list}.to_string(); }
};

}  // namespace

std::span<const LayerKind> layer_kinds() {
  using namespace detail;
  static const std::vector<LayerKind> kinds{
      dense_row(), relu_row(), add_row(), softmax_cross_entropy_row(), conv2d_row(), max_pool_row(), average_pool_row(),
      global_average_pool_row(), flatten_row(), tanh_row(), sigmoid_row(), gelu_row(), smooth_l1_row(),
      sigmoid_cross_entropy_row(), l2_norm_row(), dropout_row(), batch_norm_row(), multiply_row(), concat_row(),
      // For sequences.
      embedding_row(), position_row(), layer_norm_row(), attention_row(),
      // For any tensor.
      transpose_row()};
  return kinds;
}

const LayerKind& kind_of(const Operation& operation) { return layer_kinds()[operation.index()]; }

const LayerKind* find_layer_kind(std::string_view name) {
  const auto kinds = layer_kinds();
  const auto at = std::ranges::find(kinds, name, &LayerKind::name);
  return at == kinds.end() ? nullptr : &*at;
}

std::string text_of(const AttributeSlot& value) { return std::visit(AttributeText{}, value); }

std::string text_of(const Operation& operation) {
  const LayerKind& kind = kind_of(operation);
  std::string said;
  for (const LayerAttribute& attribute : kind.attributes) {
    const AttributeSlot value = value_of(attribute, operation);
    if (are_equal(value, value_of(attribute, kind.made))) continue;
    const bool first = &attribute == &kind.attributes.front();
    said += text(said.empty() ? "" : ", ", first ? std::string{} : text(attribute.name, '='),
                 std::visit(AttributeText{.exact = true}, value));
  }
  return said.empty() ? std::string{kind.name} : text(kind.name, '(', said, ')');
}

std::string wrong_attribute(const Operation& operation) {
  for (const LayerAttribute& attribute : kind_of(operation).attributes) {
    const AttributeSlot value = value_of(attribute, operation);
    if (std::visit(InRange{attribute}, value)) continue;
    const std::string at_most = attribute.high < detail::kMostCounted ? text(" and at most ", attribute.high) : "";
    return text(attribute.name, " is ", text_of(value), "; it must be ", attribute.above_low ? "above " : "at least ",
                attribute.low, at_most);
  }
  return {};
}

namespace detail {

Image image_of(const LayerShapes& layer) {
  const std::vector<std::uint32_t>& extents = layer.inputs.front().extents;
  TROUPE_CHECK(extents.size() == 3, Code::invalid, layer.where, ": reads ", layer.inputs.front().to_string(),
               "; it takes an image of three extents: height, width, channels");
  return {extents[0], extents[1], extents[2]};
}

std::uint32_t count_windows(const LayerShapes& layer, std::string_view side, std::uint32_t image, std::uint32_t kernel,
                            std::uint32_t stride, std::uint32_t padding) {
  const std::uint64_t room = std::uint64_t{image} + 2 * std::uint64_t{padding};
  TROUPE_CHECK(kernel <= room, Code::invalid, layer.where, ": its kernel covers a ", side, " of ", kernel,
               ", more than that of the image it reads, ", layer.inputs.front().to_string(), ", with a padding of ",
               padding, " on each side");
  return static_cast<std::uint32_t>((room - kernel) / stride + 1);
}

std::uint64_t limited_product(const LayerShapes& layer, std::string_view what, std::uint64_t a, std::uint64_t b) {
  TROUPE_CHECK(a <= kMaxTensorElements / b, Code::invalid, layer.where, ": reads ", layer.inputs.front().to_string(),
               ", which makes more than ", kMaxTensorElements, ' ', what);
  return a * b;
}

LayerResult same_shape(const LayerShapes& layer) { return {layer.inputs.front()}; }

std::vector<Parameter> weight_and_bias(std::vector<std::uint64_t> extents, std::uint64_t inputs, bool has_bias) {
  const std::uint64_t units = extents.front();
  std::vector<Parameter> made{{"weight", std::move(extents), 0, std::sqrt(1.0 / static_cast<double>(inputs))}};
  if (has_bias) made.push_back({"bias", {units}, 0, 0});
  return made;
}

}  // namespace detail
}  // namespace troupe
