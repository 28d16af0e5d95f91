#include "runtime/model/graph_text.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMostTextLayers = 4096;

/// Reads the text word by word.
class GraphText {
 public:
  explicit GraphText(std::string_view all) : left_(all) {}

  bool at_end() const noexcept { return left_.empty(); }
  bool starts_with(std::string_view word) const noexcept { return left_.starts_with(word); }
  bool try_take(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  void take(std::string_view word) { check(try_take(word), word); }
  /// A string in the form of std::quoted.
  std::string take_quoted() {
    take("\"");
    std::string out;
    while (true) {
      check(!left_.empty(), "\"");
      char next = left_.front();
      left_.remove_prefix(1);
      if (next == '"') return out;
      if (next == '\\') {
        check(!left_.empty(), "\"");
        next = left_.front();
        left_.remove_prefix(1);
      }
      out += next;
    }
  }
  /// The text up to one of `ends`.
  std::string_view take_until(std::string_view ends) {
    const std::string_view word = left_.substr(0, left_.find_first_of(ends));
    left_.remove_prefix(word.size());
    return word;
  }
  template <class Number>
  Number take_number() {
    Number number{};
    const auto [end, wrong] = std::from_chars(left_.data(), left_.data() + left_.size(), number);
    check(wrong == std::errc{}, "a number");
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    return number;
  }
  /// [2, 0, 1]
  std::vector<std::uint32_t> take_list() {
    std::vector<std::uint32_t> list;
    take("[");
    while (!try_take("]")) {
      if (!list.empty()) take(", ");
      list.push_back(take_number<std::uint32_t>());
    }
    return list;
  }
  DType take_dtype() {
    for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i32})
      if (try_take(name_of(type))) return type;
    check(false, "f32, bf16, f16 or i32");
    return {};
  }
  void check(bool is, std::string_view wanted) const {
    TROUPE_CHECK(is, Code::corrupt, "the text of a graph has \"", left_.substr(0, 40), "\" where there should be ",
                 wanted);
  }

 private:
  std::string_view left_;
};

struct TakeAttributeText {
  GraphText& from;
  void operator()(std::uint32_t* to) const { *to = from.take_number<std::uint32_t>(); }
  void operator()(std::int32_t* to) const { *to = from.take_number<std::int32_t>(); }
  void operator()(double* to) const { *to = from.take_number<double>(); }
  void operator()(Size2* to) const {
    to->height = from.take_number<std::uint32_t>();
    from.take("x");
    to->width = from.take_number<std::uint32_t>();
  }
  void operator()(bool* to) const {
    *to = from.try_take("true");
    if (!*to) from.take("false");
  }
  void operator()(std::vector<std::uint32_t>* to) const { *to = from.take_list(); }
};

/// conv2d(20, kernel=5x5)
Operation take_operation(GraphText& from) {
  const std::string_view name = from.take_until("([ ");
  const LayerKind* const kind = find_layer_kind(name);
  TROUPE_CHECK(kind != nullptr, Code::corrupt, "the text of a graph has a layer \"", name.substr(0, 40),
               "\", which this build does not know");
  Operation made = kind->made;
  if (!from.try_take("(")) return made;
  bool first = true;
  while (!from.try_take(")")) {
    if (!first) from.take(", ");
    const auto named = std::ranges::find_if(
        kind->attributes, [&](const LayerAttribute& attribute) { return from.starts_with(text(attribute.name, '=')); });
    from.check(named != kind->attributes.end() || (first && !kind->attributes.empty()), "an attribute");
    const LayerAttribute& attribute = named != kind->attributes.end() ? *named : kind->attributes.front();
    if (named != kind->attributes.end()) from.take(text(attribute.name, '='));
    std::visit(TakeAttributeText{from}, attribute.slot(made));
    first = false;
  }
  return made;
}

std::vector<Layer> take_layers(GraphText& from) {
  std::vector<Layer> layers;
  while (from.try_take(" ")) {
    TROUPE_CHECK(layers.size() < kMostTextLayers, Code::corrupt, "the text of a graph has more than ", kMostTextLayers,
                 " layers");
    Layer layer{from.take_quoted(), {}, {}};
    TROUPE_CHECK(!from.starts_with("["), Code::unsupported,
                 "the layers of the model are not known: its checkpoints were written by a program "
                 "that computes it itself");
    from.take("=");
    layer.operation = take_operation(from);
    if (from.try_take("[")) {
      do layer.inputs.push_back(from.take_quoted());
      while (from.try_take(", "));
      from.take("]");
    }
    layers.push_back(std::move(layer));
  }
  from.check(from.at_end(), "a layer");
  return layers;
}

}  // namespace

Graph parse_graph(std::string_view graph) {
  GraphText from{graph};
  from.take("graph ");
  std::string name = from.take_quoted();
  std::vector<Field> fields;
  DType dtype{};
  if (from.try_take(" input ")) {
    Shape shape{from.take_list()};
    from.take(" ");
    dtype = from.take_dtype();
    fields = {{std::string{kImage}, std::move(shape), batch_type(dtype)}, {std::string{kLabel}, {}, DType::i32}};
  } else {
    while (from.try_take(" field ")) {
      Field field{from.take_quoted(), {}, {}};
      from.take(" ");
      field.shape.extents = from.take_list();
      from.take(" ");
      field.dtype = from.take_dtype();
      fields.push_back(std::move(field));
    }
    from.take(" ");
    dtype = from.take_dtype();
  }
  try {
    Graph made{std::move(name), std::move(fields), dtype, take_layers(from)};
    TROUPE_CHECK(made.to_string() == graph, Code::corrupt, "the text of a graph is not as it was written");
    return made;
  } catch (const Error& error) {
    if (error.code() == Code::unsupported) throw;
    fail(Code::corrupt, error.what());
  }
}

}  // namespace troupe
