#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// Where an attribute's value lies in an operation.
using AttributeSlot = std::variant<std::uint32_t*, std::int32_t*, double*, Size2*, bool*, std::vector<std::uint32_t>*>;

/// What can be said of a layer of some kind: units, kernel.
struct LayerAttribute {
  std::string_view name;
  AttributeSlot (*slot)(Operation&);
  double low = 0;  // of a size or a list: of each number
  double high = 0;
  std::string_view help;                      // half a sentence
  bool required = false;                      // otherwise the kind's own value stands for it
  bool above_low = false;                     // low itself is outside
  std::vector<std::string_view> elsewhere{};  // what other programs call it

  bool contains(double value) const noexcept { return (above_low ? value > low : value >= low) && value <= high; }
};

/// What a shape rule is asked.
struct LayerShapes {
  std::string where;                // graph g, layer a (conv2d(20)): what is wrong begins with it
  const Operation& operation;       // attributes are in their ranges
  std::vector<Shape> inputs;        // as many as the kind takes, all of numbers, or of tokens where it reads those
  std::uint32_t token_classes = 0;  // of tokens, which are below it; 0: any
};

/// What it answers.
struct LayerResult {
  Shape output;                         // a loss: the shape of its logits
  std::vector<Parameter> parameters{};  // named without the layer: weight, bias
  std::uint64_t multiply_adds = 0;      // of one sample's forward pass; only those of matrix products
};

/// A kind of layer: the row from which graphs are checked, app.toml is read and docs/layers.md is written. A new kind
/// is a struct in layer.hpp, a row here, and its arithmetic in each device.
struct LayerKind {
  std::string_view name;
  std::string_view help;                          // a sentence or more, as Markdown
  std::string_view shape;                         // what it reads and puts out, for people
  std::size_t least_inputs = 1, most_inputs = 1;  // of numbers; a loss also reads a field
  bool is_loss = false;
  bool has_number_targets = false;  // a loss whose field has a number for each element that it reads; else labels
  bool reads_tokens = false;        // a field of i32 in the place of numbers
  Operation made;                   // with the values of attributes that nobody gives
  std::vector<LayerAttribute> attributes;
  std::vector<std::string_view> elsewhere{};  // what other programs call it
  /// Throws Error{invalid} naming the layer and the shapes that do not fit.
  LayerResult (*infer)(const LayerShapes&);
};

/// In the order of Operation's alternatives.
std::span<const LayerKind> layer_kinds();
const LayerKind& kind_of(const Operation& operation);
/// Null: no kind is called so.
const LayerKind* find_layer_kind(std::string_view name);

/// conv2d(20, kernel=5x5): the kind and what differs from its own values, the first attribute without its name. Equal
/// for equal operations only.
std::string text_of(const Operation& operation);
/// 20, 0.5, 5x5, true, [2, 0, 1].
std::string text_of(const AttributeSlot& value);
/// What is wrong with the attributes' values, or nothing.
std::string wrong_attribute(const Operation& operation);

/// No tensor may be larger, so that sizes and offsets in bytes never overflow.
inline constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 40;

}  // namespace troupe
