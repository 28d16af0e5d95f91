#include "runtime/model/graph.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <unordered_set>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/text_stream.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/reader_counts.hpp"

namespace troupe {
namespace {

std::uint64_t product(const std::vector<std::uint32_t>& extents) noexcept {
  std::uint64_t count = 1;
  for (const std::uint32_t extent : extents) count *= extent;
  return count;
}

/// Throws unless `shape` has at least one extent, all are positive, and there are not too many elements.
void check_shape(const std::string& whose, const Shape& shape) {
  TROUPE_CHECK(!shape.extents.empty(), Code::invalid, whose, " has no extents; give at least one");
  std::uint64_t count = 1;
  for (const std::uint32_t extent : shape.extents) {
    TROUPE_CHECK(extent > 0 && extent <= kMaxTensorElements / count, Code::invalid, whose, ' ', shape.to_string(),
                 " must have positive extents and at most ", kMaxTensorElements, " elements");
    count *= extent;
  }
}

/// Checkpoints and reports are JSON, whose text is UTF-8, and a terminal would obey control characters.
void check_name(const std::string& graph, const char* kind, std::uint32_t number, const std::string& name) {
  TROUPE_CHECK(!name.empty(), Code::invalid, "graph ", graph, ": ", kind, ' ', number, " has no name");
  TROUPE_CHECK(printable(name) == name, Code::invalid, "graph ", graph, ": ", kind, ' ', number, " is called ",
               printable(name), "; a name must be text in UTF-8 without control characters");
}

bool is_loss(const Layer& layer) { return kind_of(layer.operation).is_loss; }

/// Whether the field has labels or tokens. Samples' keys are neither, although they have the same type.
bool has_labels(const Field& field) { return field.dtype == DType::i32 && field.name != kSampleKey; }

bool draws(const Layer& layer) { return std::holds_alternative<Dropout>(layer.operation); }

std::vector<Field> classifier_fields(Shape input, DType dtype) {
  return {{std::string{kImage}, std::move(input), batch_type(dtype)}, {std::string{kLabel}, {}, DType::i32}};
}

/// Whether these are the fields of a classifier, whose texts contain only the image's shape.
bool are_classifier_fields(const std::vector<Field>& fields, DType dtype) {
  return fields.size() == 2 && fields[0].name == kImage && fields[0].dtype == batch_type(dtype) &&
         fields[1].name == kLabel && fields[1].shape.extents.empty() && fields[1].dtype == DType::i32;
}

}  // namespace

std::string_view name_of(DType type) noexcept {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: break;
  }
  return "i32";
}

std::uint64_t Shape::count_elements() const noexcept { return product(extents); }

std::string Shape::to_string() const {
  TextStream out;
  out << '[';
  for (std::size_t i = 0; i < extents.size(); ++i) out << (i ? ", " : "") << extents[i];
  out << ']';
  return out.str();
}

std::string Field::to_string() const { return text(name, ' ', shape.to_string(), ' ', name_of(dtype)); }

const Field* find_field(const std::vector<Field>& fields, std::string_view name) noexcept {
  for (const Field& field : fields)
    if (field.name == name) return &field;
  return nullptr;
}

std::uint64_t Parameter::count_elements() const noexcept {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : extents) count *= extent;
  return count;
}

Graph::Graph(std::string name, std::vector<Field> fields, DType dtype, std::vector<Layer> layers)
    : name_(std::move(name)), fields_(std::move(fields)), dtype_(dtype), layers_(std::move(layers)) {
  TROUPE_CHECK(dtype_ != DType::i32, Code::invalid, "graph ", name_, ": it computes in f32, bf16 or f16, not in i32");
  if (std::ranges::any_of(layers_, draws) && find_field(fields_, kSampleKey) == nullptr)
    fields_.push_back(sample_key_field());
  check_fields();
  TROUPE_CHECK(!layers_.empty(), Code::invalid, "graph ", name_, ": it has no layers");
  connect();
  TROUPE_CHECK(is_loss(layers_.back()), Code::invalid, "graph ", name_, ", layer ", layers_.back().name,
               ": the last layer must be a loss (SoftmaxCrossEntropy)");
  for (const Field& field : fields_) {
    shapes_.push_back(field.shape);
    trained_.push_back(false);
  }
  for (std::uint32_t i = 0; i < layers_.size(); ++i) infer(i);
  TROUPE_CHECK(!parameters_.empty(), Code::invalid, "graph ", name_,
               ": no layer has parameters, so there is nothing to train");
  const std::vector<std::uint32_t> readers = reader_counts(*this);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    TROUPE_CHECK(is_loss(layers_[i]) || readers[output_tensor(i)] > 0, Code::invalid, "graph ", name_, ", layer ",
                 layers_[i].name, ": no layer reads its output");
  }
  for (std::uint32_t f = 0; f < fields_.size(); ++f) {
    TROUPE_CHECK(readers[f] > 0 || fields_[f].name == kSampleKey, Code::invalid, "graph ", name_,
                 ": no layer reads field ", fields_[f].name);
  }
}

Graph::Graph(std::string name, Shape input, DType dtype, std::vector<Layer> layers)
    : Graph(std::move(name), classifier_fields(std::move(input), dtype), dtype, std::move(layers)) {}

void Graph::check_fields() const {
  std::unordered_set<std::string> names;
  for (const Field& field : fields_) {
    TROUPE_CHECK(!field.name.empty() && names.insert(field.name).second, Code::invalid, "graph ", name_, ": field \"",
                 field.name, "\": a field must have a name of its own");
    if (field == sample_key_field()) continue;
    const bool label = field.dtype == DType::i32;
    TROUPE_CHECK(label || field.dtype == batch_type(dtype_), Code::invalid, "graph ", name_, ", field ", field.name,
                 ": is ", name_of(field.dtype), "; numbers that a model in ", name_of(dtype_), " reads are ",
                 name_of(batch_type(dtype_)));
    const bool one_label = label && field.shape.extents.empty();
    if (!one_label) check_shape(text("graph ", name_, ": field ", field.name), field.shape);
  }
}

/// Finds the input tensors of every layer.
void Graph::connect() {
  std::unordered_set<std::string> names;
  for (const Field& field : fields_) names.insert(field.name);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    check_name(name_, "layer", i, layer.name);
    TROUPE_CHECK(names.insert(layer.name).second, Code::invalid, "graph ", name_, ": two layers or fields are called ",
                 layer.name, "; names must differ");
    std::vector<std::uint32_t>& inputs = inputs_.emplace_back();
    for (const std::string& input : layer.inputs) inputs.push_back(find_tensor(i, input));
    if (!inputs.empty()) continue;
    TROUPE_CHECK(!fields_.empty(), Code::invalid, "graph ", name_, ", layer ", layer.name,
                 ": there is no field that it could read");
    inputs.push_back(i == 0 ? 0 : output_tensor(i - 1));
    if (is_loss(layer)) inputs.push_back(find_tensor(i, std::string{kLabel}));
  }
}

/// The tensor called `name` that `layer` can read.
std::uint32_t Graph::find_tensor(std::uint32_t layer, const std::string& name) const {
  std::uint32_t tensor = 0;
  for (const Field& field : fields_) {
    if (field.name == name) return tensor;
    ++tensor;
  }
  for (std::uint32_t i = 0; i < layer; ++i, ++tensor)
    if (layers_[i].name == name) return tensor;
  std::string fields;
  for (const Field& field : fields_) fields += (fields.empty() ? "" : ", ") + field.name;
  fail(Code::invalid, text("graph ", name_, ", layer ", layers_[layer].name, ": it reads \"", name,
                           "\", which is neither a field (", fields, ") nor an earlier layer"));
}

std::string Graph::where(std::uint32_t layer) const { return text("graph ", name_, ", layer ", layers_[layer].name); }

void Graph::infer(std::uint32_t layer) {
  const Operation& operation = layers_[layer].operation;
  const LayerKind& kind = kind_of(operation);
  const std::size_t labels = kind.is_loss ? 1 : 0;
  check_count(layer, kind.least_inputs + labels, kind.most_inputs + labels);
  const std::string wrong = wrong_attribute(operation);
  TROUPE_CHECK(wrong.empty(), Code::invalid, where(layer), " (", kind.name, "): ", wrong);
  LayerShapes shapes{where(layer), operation, {}};
  if (kind.reads_tokens) {
    shapes.inputs.push_back(tokens(layer).shape);
    shapes.token_classes = tokens(layer).classes;
  }
  for (std::size_t i = shapes.inputs.size(); i + labels < inputs_[layer].size(); ++i)
    shapes.inputs.push_back(numbers(layer, i));
  LayerResult result = kind.infer(shapes);
  check_shape(where(layer) + ": its output", result.output);
  if (kind.has_number_targets)
    check_number_targets(layer, result.output);
  else if (kind.is_loss)
    check_labels(layer, result.output);
  bool trained = !result.parameters.empty();
  for (const std::uint32_t input : inputs_[layer]) trained = trained || trained_[input];
  for (Parameter& parameter : result.parameters) {
    parameter.name = text(layers_[layer].name, '.', parameter.name);
    parameter.layer = layer;
    parameters_.push_back(std::move(parameter));
  }
  shapes_.push_back(std::move(result.output));
  trained_.push_back(trained);
  multiply_adds_.push_back(result.multiply_adds);
}

/// Throws unless `layer` reads `least` to `most` tensors.
void Graph::check_count(std::uint32_t layer, std::size_t least, std::size_t most) const {
  const std::size_t count = inputs_[layer].size();
  TROUPE_CHECK(count >= least && count <= most, Code::invalid, "graph ", name_, ", layer ", layers_[layer].name, " (",
               text_of(layers_[layer].operation), "): it reads ", count, " tensors, ",
               count < least ? "fewer than " : "more than ", count < least ? least : most);
}

/// The shape of input `index` of a layer, which must be numbers.
const Shape& Graph::numbers(std::uint32_t layer, std::size_t index) const {
  const std::uint32_t tensor = inputs_[layer][index];
  if (tensor < fields_.size()) {
    TROUPE_CHECK(fields_[tensor].dtype != DType::i32, Code::invalid, "graph ", name_, ", layer ", layers_[layer].name,
                 ": field ", fields_[tensor].name, " has labels; this layer reads numbers");
  } else {
    const Layer& read = layers_[tensor - fields_.size()];
    TROUPE_CHECK(!is_loss(read), Code::invalid, "graph ", name_, ", layer ", layers_[layer].name, ": it reads ",
                 read.name, ", a loss, which is the last layer of its branch");
  }
  return shapes_[tensor];
}

/// The field that is read by a layer of a kind that reads tokens.
const Field& Graph::tokens(std::uint32_t layer) const {
  const std::uint32_t tensor = inputs_[layer].front();
  const bool found = tensor < fields_.size() && has_labels(fields_[tensor]);
  TROUPE_CHECK(found, Code::invalid, where(layer), ": reads ",
               tensor < fields_.size() ? fields_[tensor].name : layers_[tensor - fields_.size()].name,
               ", which has no tokens; this layer reads a field of tokens (i32)");
  return fields_[tensor];
}

/// Throws unless the last input of the loss `layer` is a field of labels for its logits.
void Graph::check_labels(std::uint32_t layer, const Shape& logits) const {
  const std::uint32_t labels = inputs_[layer].back();
  TROUPE_CHECK(labels < fields_.size() && has_labels(fields_[labels]), Code::invalid, where(layer), ": ",
               layers_[layer].inputs.empty() ? std::string{kLabel} : layers_[layer].inputs.back(),
               " has no labels; a loss reads logits, then a field of i32");
  const Field& field = fields_[labels];
  Shape each = logits;  // the shape without the classes
  each.extents.pop_back();
  TROUPE_CHECK(field.shape.extents.empty() || field.shape == each, Code::invalid, where(layer), ": logits ",
               logits.to_string(), " for labels ", field.shape.to_string(), " of field ", field.name,
               "; they must have one extent more, the classes");
  const std::uint64_t classes = logits.count_elements() / field.shape.count_elements();
  TROUPE_CHECK(field.classes <= classes, Code::invalid, where(layer), ": ", classes, " logits for field ", field.name,
               " of ", field.classes, " classes, of which each needs a logit: let the layer before the loss output ",
               field.classes);
}

/// Throws unless the last input of the loss `layer` is a field with as many numbers as its first input.
void Graph::check_number_targets(std::uint32_t layer, const Shape& read) const {
  const std::uint32_t targets = inputs_[layer].back();
  const std::string_view name = layers_[layer].inputs.empty() ? kLabel : std::string_view{layers_[layer].inputs.back()};
  TROUPE_CHECK(targets < fields_.size() && fields_[targets].dtype != DType::i32, Code::invalid, where(layer), ": ",
               name,
               " is not a field of numbers; this loss reads numbers, then a field of as many numbers, its targets");
  TROUPE_CHECK(fields_[targets].shape.count_elements() == read.count_elements(), Code::invalid, where(layer),
               ": reads ", read.to_string(), " and targets of ", fields_[targets].shape.to_string(), " in field ", name,
               "; there must be as many");
}

Graph::Graph(std::string name, std::vector<Field> fields, std::vector<Parameter> parameters)
    : name_(std::move(name)), fields_(std::move(fields)), dtype_(DType::f32), parameters_(std::move(parameters)) {
  check_fields();
  TROUPE_CHECK(!parameters_.empty(), Code::invalid, "graph ", name_, ": it has no parameters, so nothing to train");
  std::unordered_set<std::string> names;
  for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    check_name(name_, "parameter", i, parameter.name);
    TROUPE_CHECK(names.insert(parameter.name).second, Code::invalid, "graph ", name_, ": two parameters are called ",
                 parameter.name, "; names must differ");
    std::uint64_t count = 1;
    for (const std::uint64_t extent : parameter.extents) {
      TROUPE_CHECK(extent > 0 && extent <= kMaxTensorElements / count, Code::invalid, "graph ", name_, ", parameter ",
                   parameter.name, ": its extents must be positive and make at most ", kMaxTensorElements, " elements");
      count *= extent;
    }
    TROUPE_CHECK(std::isfinite(parameter.deviation) && parameter.deviation >= 0, Code::invalid, "graph ", name_,
                 ", parameter ", parameter.name, ": its deviation is ", parameter.deviation,
                 "; it must be 0 or positive");
    TROUPE_CHECK(std::isfinite(parameter.mean) && parameter.momentum >= 0 && parameter.momentum <= 1, Code::invalid,
                 "graph ", name_, ", parameter ", parameter.name, ": it starts with ", parameter.mean,
                 ", which must be finite, and has a momentum of ", parameter.momentum, ", which must be 0 to 1");
    parameter.layer = i;
  }
}

std::uint32_t Graph::count_readers(std::uint32_t tensor) const noexcept {
  std::ptrdiff_t count = 0;
  for (const auto& inputs : inputs_) count += std::count(inputs.begin(), inputs.end(), tensor);
  return static_cast<std::uint32_t>(count);
}

void Graph::recompute(std::vector<LayerRange> ranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const LayerRange& range = ranges[i];
    TROUPE_CHECK(range.first <= range.last && range.last < layers_.size(), Code::invalid, "graph ", name_, ": layers ",
                 range.first, " to ", range.last, " are to be recomputed, of ", layers_.size());
    TROUPE_CHECK(i == 0 || range.first > ranges[i - 1].last, Code::invalid, "graph ", name_, ": layer ",
                 layers_[range.first].name, " is in two ranges that are to be recomputed, or the second comes first");
    for (std::uint32_t layer = range.first; layer <= range.last; ++layer)
      TROUPE_CHECK(!is_loss(layers_[layer]), Code::invalid, "graph ", name_, ": layer ", layers_[layer].name,
                   " is a loss, which cannot be recomputed; end the range before it");
  }
  recomputed_ = std::move(ranges);
}

/// Whether the output of `layer`, which is in the range, is read only by layers of the range.
bool Graph::is_recomputed(std::uint32_t layer, const LayerRange& range) const noexcept {
  for (std::uint32_t reader = 0; reader < layers_.size(); ++reader) {
    if (reader >= range.first && reader <= range.last) continue;
    if (std::ranges::find(inputs_[reader], output_tensor(layer)) != inputs_[reader].end()) return false;
  }
  return true;
}

std::uint32_t Graph::count_classes() const noexcept {
  if (layers_.empty()) return 0;
  const bool one_for_each = kind_of(layers_.back().operation).has_number_targets;
  const std::uint64_t labels = one_for_each ? 1 : shapes_.at(inputs_.back().back()).count_elements();
  return static_cast<std::uint32_t>(shapes_.back().count_elements() / labels);
}

std::uint64_t Graph::count_parameters() const noexcept {
  std::uint64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.count_elements();
  return count;
}

// Only matrix products are counted: operations on single elements are limited by memory, not by arithmetic.
std::uint64_t Graph::forward_flops() const noexcept {
  std::uint64_t flops = 0;
  for (const std::uint64_t multiply_adds : multiply_adds_) flops += 2 * multiply_adds;
  for (const Parameter& parameter : parameters_)
    if (layers_.empty() && parameter.extents.size() == 2) flops += 2 * parameter.count_elements();
  return flops;
}

std::uint64_t Graph::training_flops() const noexcept {
  // Forward, gradient to the weights and gradient to the input have the same cost.
  std::uint64_t flops = 3 * forward_flops();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    if (!trained_[inputs_[layer].front()]) flops -= 2 * multiply_adds_[layer];
  for (const LayerRange& range : recomputed_)
    for (std::uint32_t layer = range.first; layer <= range.last; ++layer)
      if (is_recomputed(layer, range)) flops += 2 * multiply_adds_[layer];
  return flops;
}

std::string Graph::to_string() const {
  TextStream out;
  out << "graph " << std::quoted(name_);
  const bool classifier = are_classifier_fields(fields_, dtype_);
  if (classifier) {
    out << " input " << fields_[0].shape.to_string() << ' ' << name_of(dtype_);
  } else {
    for (const Field& field : fields_)
      out << " field " << std::quoted(field.name) << ' ' << field.shape.to_string() << ' ' << name_of(field.dtype);
    out << ' ' << name_of(dtype_);
  }
  for (const Layer& layer : layers_) {
    out << ' ' << std::quoted(layer.name) << '=' << text_of(layer.operation);
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      out << (i == 0 ? "[" : ", ") << std::quoted(layer.inputs[i]) << (i + 1 == layer.inputs.size() ? "]" : "");
  }
  if (layers_.empty()) {
    for (const Parameter& parameter : parameters_) {
      out << ' ' << std::quoted(parameter.name) << '[';
      for (const std::uint64_t extent : parameter.extents) out << ' ' << extent;
      out << " ] deviation " << std::setprecision(17) << parameter.deviation;
      if (parameter.mean != 0) out << " mean " << parameter.mean;
      if (parameter.is_statistic()) out << " momentum " << parameter.momentum;
    }
  }
  return out.str();
}

}  // namespace troupe
