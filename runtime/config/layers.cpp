#include "runtime/config/detail/layers.hpp"

#include <algorithm>

#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/layer_list.hpp"

namespace troupe::detail {
namespace {

using Kind = TomlValue::Kind;

constexpr std::string_view kLayerAsIn = ", as in { kind = \"conv2d\", filters = 20, kernel = 5 } or \"tanh\"";

Finding wrong_layer(Place place, std::string what) { return invalid(std::move(what), place); }

/// The row called `name` here or in other programs, or the nearest; null: none.
template <class Row>
const Row* meant_row(std::span<const Row> rows, std::string_view name) {
  const auto called_so = [&](const Row& row) { return std::ranges::find(row.elsewhere, name) != row.elsewhere.end(); };
  if (const auto at = std::ranges::find_if(rows, called_so); at != rows.end()) return &*at;
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.push_back(row.name);
  const auto at = std::ranges::find(rows, nearest(name, names), &Row::name);
  return at == rows.end() ? nullptr : &*at;
}

/// Advice for messages: a phrase.
template <class Row>
std::string cure(std::span<const Row> rows, std::string_view name, std::string_view otherwise) {
  const Row* const meant = meant_row(rows, name);
  if (meant != nullptr) return troupe::text("; did you mean ", meant->name, '?');
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.push_back(row.name);
  return names.empty() ? std::string{otherwise} : troupe::text("; there are ", listed(names));
}

/// Whether `value` is an integer that fits; if so, stores it in `to`.
bool take_count(const TomlValue& value, std::uint32_t& to) {
  if (value.kind != Kind::integer || value.integer < 0 || value.integer > 0xffffffffLL) return false;
  to = static_cast<std::uint32_t>(value.integer);
  return true;
}

/// Stores the value in an attribute; false if it is of another kind.
struct TakeAttribute {
  const TomlValue& value;
  bool operator()(std::uint32_t* to) const { return take_count(value, *to); }
  bool operator()(std::int32_t* to) const {
    if (value.kind != Kind::integer || value.integer < -0x80000000LL || value.integer > 0x7fffffffLL) return false;
    *to = static_cast<std::int32_t>(value.integer);
    return true;
  }
  bool operator()(double* to) const {
    *to = value.number;
    return value.kind == Kind::integer || value.kind == Kind::number;
  }
  bool operator()(bool* to) const {
    *to = value.boolean;
    return value.kind == Kind::boolean;
  }
  bool operator()(Size2* to) const {
    if (value.kind != Kind::array) return take_count(value, to->height) && take_count(value, to->width);
    return value.items.size() == 2 && take_count(value.items[0], to->height) && take_count(value.items[1], to->width);
  }
  bool operator()(std::vector<std::uint32_t>* to) const {
    to->clear();
    for (const TomlValue& item : value.items)
      if (!take_count(item, to->emplace_back())) return false;
    return value.kind == Kind::array;
  }
};

/// What an attribute takes, for messages.
std::string takes(const LayerAttribute& attribute, const AttributeSlot& slot) {
  const std::string least = troupe::text(attribute.above_low ? " above " : " of at least ", number_text(attribute.low));
  if (std::holds_alternative<double*>(slot)) return "a number" + least;
  if (std::holds_alternative<bool*>(slot)) return "true or false";
  if (std::holds_alternative<Size2*>(slot)) return "an integer, or [height, width]";
  if (std::holds_alternative<std::vector<std::uint32_t>*>(slot)) return "a list of integers";
  return "an integer" + least;
}

std::optional<Finding> take_attribute(const LayerKind& kind, Operation& operation, const TomlValue::Entry& entry) {
  const std::span<const LayerAttribute> attributes{kind.attributes};
  const auto at = std::ranges::find(attributes, entry.key, &LayerAttribute::name);
  if (at == attributes.end()) {
    return wrong_layer(entry.place, troupe::text("has a ", kind.name, " with the unknown key ", in_quotes(entry.key),
                                                 cure(attributes, entry.key, "; it takes name and inputs only")));
  }
  const AttributeSlot slot = at->slot(operation);
  if (!std::visit(TakeAttribute{entry.value}, slot)) {
    return wrong_layer(entry.value.place,
                       troupe::text("has a ", kind.name, " whose ", at->name, " is ", describe(entry.value),
                                    ", but takes ", takes(*at, slot), ": ", at->help));
  }
  const std::string wrong = wrong_attribute(operation);
  if (wrong.starts_with(troupe::text(at->name, " is ")))
    return wrong_layer(entry.value.place, troupe::text("has a ", kind.name, " whose ", wrong));
  return std::nullopt;
}

/// The texts of `inputs`; empty if it is not an array of names.
std::optional<std::vector<std::string>> names_in(const TomlValue& value) {
  std::vector<std::string> names;
  for (const TomlValue& item : value.items) {
    if (item.kind != Kind::text || item.text.empty()) return std::nullopt;
    names.push_back(item.text);
  }
  if (value.kind != Kind::array || names.empty()) return std::nullopt;
  return names;
}

const TomlValue* find_entry(const TomlValue& table, std::string_view key) {
  const auto at = std::ranges::find(table.entries, key, &TomlValue::Entry::key);
  return at == table.entries.end() ? nullptr : &at->value;
}

/// Adds one entry's layer to `list`.
std::optional<Finding> take_layer(const TomlValue& entry, LayerList& list) {
  const TomlValue* const word = entry.kind == Kind::table ? find_entry(entry, "kind") : &entry;
  if (word == nullptr || word->kind != Kind::text)
    return wrong_layer(entry.place,
                       troupe::text("has ", describe(entry), ", which names no kind of layer", kLayerAsIn));
  const LayerKind* const kind = find_layer_kind(word->text);
  if (kind == nullptr) {
    return wrong_layer(word->place,
                       troupe::text("has the layer ", in_quotes(word->text.substr(0, 60)),
                                    ", which is not a kind of layer", cure(layer_kinds(), word->text, "")));
  }
  Operation operation = kind->made;
  std::vector<std::string> inputs;
  std::string name;
  for (const TomlValue::Entry& given : entry.entries) {
    if (given.key == "kind") continue;
    if (given.key == "name") {
      if (given.value.kind != Kind::text || given.value.text.empty() || list.has(given.value.text))
        return wrong_layer(given.value.place,
                           troupe::text("has a ", kind->name, " whose name is ", describe(given.value),
                                        "; give each layer a name of its own, or none"));
      name = given.value.text;
    } else if (given.key == "inputs") {
      const auto names = names_in(given.value);
      if (!names)
        return wrong_layer(given.value.place,
                           troupe::text("has a ", kind->name, " whose inputs are ", describe(given.value),
                                        ", but takes names of layers or fields, as in [\"conv2d_1\"]"));
      inputs = *names;
    } else if (auto finding = take_attribute(*kind, operation, given)) {
      return finding;
    }
  }
  for (const LayerAttribute& attribute : kind->attributes) {
    const bool takes_list = std::holds_alternative<std::vector<std::uint32_t>*>(attribute.slot(operation));
    if (attribute.required && find_entry(entry, attribute.name) == nullptr)
      return wrong_layer(entry.place, troupe::text("has a ", kind->name, " without ", attribute.name, ": ",
                                                   attribute.help, "; write { kind = ", in_quotes(kind->name), ", ",
                                                   attribute.name, " = ", takes_list ? "[2, 0, 1]" : "32", " }"));
  }
  list.add(std::move(operation), std::move(inputs), std::move(name));
  return std::nullopt;
}

/// An attribute as TOML.
struct ShowAttribute {
  std::string operator()(const std::uint32_t* value) const { return std::to_string(*value); }
  std::string operator()(const std::int32_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const { return number_text(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::vector<std::uint32_t>* list) const { return Shape{*list}.to_string(); }
  std::string operator()(const Size2* size) const {
    if (size->height == size->width) return std::to_string(size->height);
    return troupe::text('[', size->height, ", ", size->width, ']');
  }
};

std::string show_layer(const Layer& layer) {
  const LayerKind& kind = kind_of(layer.operation);
  std::string out = troupe::text("{ kind = ", in_quotes(kind.name), ", name = ", in_quotes(layer.name));
  Operation own = layer.operation, made = kind.made;
  for (const LayerAttribute& attribute : kind.attributes) {
    const std::string value = std::visit(ShowAttribute{}, attribute.slot(own));
    if (value != std::visit(ShowAttribute{}, attribute.slot(made)))
      out += troupe::text(", ", attribute.name, " = ", value);
  }
  std::string inputs;
  for (const std::string& input : layer.inputs) inputs += troupe::text(inputs.empty() ? "" : ", ", in_quotes(input));
  return out + (inputs.empty() ? " }" : troupe::text(", inputs = [", inputs, "] }"));
}

}  // namespace

std::optional<Finding> check_layers(const TomlValue& value) {
  if (value.items.size() > kMostLayers)
    return wrong_layer(value.place,
                       troupe::text("has ", value.items.size(), " layers, but takes at most ", kMostLayers));
  LayerList list;
  for (const TomlValue& entry : value.items)
    if (auto finding = take_layer(entry, list)) return finding;
  return std::nullopt;
}

void store_layers(Settings& settings, const TomlValue& value) {
  LayerList list;
  for (const TomlValue& entry : value.items) take_layer(entry, list);
  settings.model.layers = value.items.empty() ? std::vector<Layer>{} : list.finish();
}

std::string show_layers(const Settings& settings) {
  std::string out;
  for (const Layer& layer : settings.model.layers) out += (out.empty() ? "" : ", ") + show_layer(layer);
  return "[" + out + "]";
}

}  // namespace troupe::detail
