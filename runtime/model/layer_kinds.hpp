#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// The address of an attribute's value in an operation.
using AttributeSlot = std::variant<std::uint32_t*, std::int32_t*, double*, Size2*, bool*, std::vector<std::uint32_t>*>;

/// An attribute of a kind of layer, e.g. units or kernel.
struct LayerAttribute {
  std::string_view name;
  AttributeSlot (*slot)(Operation&);
  double low = 0;  // of a size or a list: of each number
  double high = 0;
  std::string_view help;                      // a phrase
  bool required = false;                      // otherwise the kind's default is used
  bool above_low = false;                     // low itself is not allowed
  std::vector<std::string_view> elsewhere{};  // names in other programs

  bool contains(double value) const noexcept { return (above_low ? value > low : value >= low) && value <= high; }
};

/// The input of a shape rule.
struct LayerShapes {
  std::string where;                // graph g, layer a (conv2d(20)): error messages begin with it
  const Operation& operation;       // attributes are in their ranges
  std::vector<Shape> inputs;        // as many as the kind takes; all are numbers, or tokens for a kind that reads those
  std::uint32_t token_classes = 0;  // tokens are below this; 0: any number
};

/// The result of a shape rule.
struct LayerResult {
  Shape output;                         // a loss: the shape of its logits
  std::vector<Parameter> parameters{};  // named without the layer: weight, bias
  std::uint64_t multiply_adds = 0;      // of one sample's forward pass; only matrix products count
};

/// A kind of layer: the row from which graphs are checked, app.toml is read and docs/layers.md is written. A new kind
/// needs a struct in layer.hpp, a row, and its arithmetic in each device; docs/extending.md lists the places.
struct LayerKind {
  std::string_view name;
  std::string_view help;                          // one or more sentences, as Markdown
  std::string_view shape;                         // its input and output shapes, for people
  std::size_t least_inputs = 1, most_inputs = 1;  // number inputs; a loss also reads a field
  bool is_loss = false;
  bool has_number_targets = false;  // a loss whose field has a number per element; otherwise labels
  bool reads_tokens = false;        // reads a field of i32 instead of numbers
  Operation made;                   // with the attributes' defaults
  std::vector<LayerAttribute> attributes;
  std::vector<std::string_view> elsewhere{};  // names in other programs
  /// Throws Error{invalid}, which names the layer and the shapes that do not fit.
  LayerResult (*infer)(const LayerShapes&);
};

/// In the order of Operation's alternatives.
std::span<const LayerKind> layer_kinds();
const LayerKind& kind_of(const Operation& operation);
/// Null: there is no such kind.
const LayerKind* find_layer_kind(std::string_view name);

/// conv2d(20, kernel=5x5): the kind and the attributes that differ from their defaults, the first one without its name.
/// Two texts are equal only if the operations are.
std::string text_of(const Operation& operation);
/// 20, 0.5, 5x5, true, [2, 0, 1].
std::string text_of(const AttributeSlot& value);
/// What is wrong with the values of the attributes; empty: nothing.
std::string wrong_attribute(const Operation& operation);

/// The largest tensor; with it, sizes and offsets in bytes never overflow.
inline constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 40;

}  // namespace troupe
