#include "runtime/onnx/detail/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/error.hpp"

namespace troupe::detail {

/// Whatever the locale of the app, in which strtod() may expect a comma.
double decimal_of(float number) {
  const std::string digits = fmt::format("{}", number);
  double decimal = number;
  std::from_chars(digits.data(), digits.data() + digits.size(), decimal);
  return decimal;
}
std::uint32_t size_of(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max() ? static_cast<std::uint32_t>(number)
                                                                           : std::numeric_limits<std::uint32_t>::max();
}
bool is_near(double found, double wanted) { return std::abs(found - wanted) <= 1e-5 * std::abs(wanted); }

Importer::Importer(OnnxFile file, const std::vector<Field>& fields, const OnnxOptions& options, std::string where,
                   std::uint64_t most_numbers)
    : file_(std::move(file)), where_(std::move(where)), model_(fields, most_numbers), computed_(most_numbers) {
  constants_ = std::move(file_.initializers);
  choose_output(options);
  const std::set<const OnnxNode*> needed = needed_nodes();
  add_inputs(needed);
  for (const OnnxNode& node : file_.nodes) {
    if (!needed.contains(&node)) continue;
    node_ = &node;
    TROUPE_CHECK(node.domain.empty() || node.domain == "ai.onnx", Code::unsupported, here(), " is of the domain ",
                 node.domain, "; this build reads operations of ONNX itself");
    if (!compute(node)) add(node);
  }
}

OnnxModel Importer::finish() {
  const Value last = value(wanted_output_);
  const std::uint32_t output = last.form == Form::softmax ? last.tensor : plain(wanted_output_);
  TROUPE_CHECK(!model_.is_field(output), Code::unsupported, where_, ": has no layers");
  OnnxModel made = model_.finish(file_.name, output);
  if (last.form == Form::softmax) made.softmax = last.node->name;
  return made;
}

// ---- What a file puts out, and what goes in ----

void Importer::choose_output(const OnnxOptions& options) {
  std::string names;
  for (const OnnxValue& output : file_.outputs) names += text(names.empty() ? "\"" : ", \"", output.name, '"');
  TROUPE_CHECK(!file_.outputs.empty(), Code::invalid, where_, ": puts out nothing");
  if (options.output.empty()) {
    TROUPE_CHECK(file_.outputs.size() == 1, Code::unsupported, where_, ": has the outputs ", names,
                 "; model.onnx_output must name the one with the logits");
    wanted_output_ = file_.outputs[0].name;
    return;
  }
  const auto at = std::ranges::find(file_.outputs, options.output, &OnnxValue::name);
  TROUPE_CHECK(at != file_.outputs.end(), Code::invalid, where_, ": has no output \"", options.output,
               "\", which model.onnx_output names; there are ", names);
  wanted_output_ = at->name;
}

/// Those from which the output is computed; the others are not read at all.
std::set<const OnnxNode*> Importer::needed_nodes() const {
  std::map<std::string_view, const OnnxNode*> makers;
  for (const OnnxNode& node : file_.nodes)
    for (const std::string_view output : node.outputs) makers[output] = &node;
  TROUPE_CHECK(makers.contains(wanted_output_), Code::invalid, where_, ": no node puts out \"", wanted_output_, '"');
  std::set<const OnnxNode*> needed{makers.at(wanted_output_)};
  std::vector<const OnnxNode*> open{makers.at(wanted_output_)};
  while (!open.empty()) {
    const OnnxNode* const node = open.back();
    open.pop_back();
    for (const std::string_view input : node->inputs)
      if (const auto at = makers.find(input); at != makers.end() && needed.insert(at->second).second)
        open.push_back(at->second);
  }
  return needed;
}

void Importer::add_inputs(const std::set<const OnnxNode*>& needed) {
  std::set<std::string_view> read;
  for (const OnnxNode* node : needed) read.insert(node->inputs.begin(), node->inputs.end());
  std::vector<const OnnxValue*> inputs;
  for (const OnnxValue& input : file_.inputs)
    if (read.contains(input.name)) inputs.push_back(&input);
  for (const OnnxValue* input : inputs)
    rows_ = input->dims.empty() ? rows_ : static_cast<std::uint64_t>(std::max<std::int64_t>(input->dims[0], 0));
  constexpr std::uint64_t kMostRows = 1 << 20;  // so that counts of elements do not overflow
  TROUPE_CHECK(rows_ <= kMostRows, Code::unsupported, where_, ": fixes the number of rows to ", rows_,
               "; export it with any number of them");
  for (const OnnxValue* input : inputs) add_input(*input, inputs.size() == 1);
}

void Importer::add_input(const OnnxValue& given, bool is_only_one) {
  const std::vector<Field>& fields = model_.fields();
  std::string names;
  for (const Field& field : fields) names += text(names.empty() ? "" : ", ", field.to_string());
  const auto named = std::ranges::find(fields, given.name, &Field::name);
  const bool first_field = named == fields.end() && is_only_one && !fields.empty();
  TROUPE_CHECK(first_field || named != fields.end(), Code::invalid, where_, ": has the input \"", given.name,
               "\"; the data set has ", names, "; an input is a field of the data, by name");
  const auto tensor = static_cast<std::uint32_t>(first_field ? 0 : named - fields.begin());
  const Field& field = fields[tensor];
  TROUPE_CHECK((field.dtype == DType::i32) == given.whole, Code::invalid, where_, ": input \"", given.name, "\" has ",
               given.whole ? "whole numbers" : "f32", ", which field ", field.to_string(), " has not");
  const auto fits = [&](const Arrangement& arranged) {
    if (given.dims.size() != arranged.count_axes()) return false;
    for (std::size_t i = 1; i < given.dims.size(); ++i)
      if (given.dims[i] != 0 && given.dims[i] != arranged.extent(i).count) return false;
    return true;
  };
  const bool image = field.shape.extents.size() == 3;
  std::vector<Arrangement> all{Arrangement{field.shape, rows_}};
  if (image) all.push_back(Arrangement::channels_first(field.shape, rows_));
  if (image && field.shape.extents[2] == 1) {
    const OnnxExtent rows = all.front().extent(0);
    const auto height = std::int64_t{field.shape.extents[0]}, width = std::int64_t{field.shape.extents[1]};
    for (const std::vector<OnnxExtent>& to :
         {std::vector<OnnxExtent>{rows, {height}, {width}}, {rows, {height * width}}})
      if (Arrangement made = all.front(); made.reshape(to)) all.push_back(std::move(made));
  }
  const auto found = std::ranges::find_if(all, fits);
  std::string dims;
  for (const std::int64_t dim : given.dims) dims += text(dims.empty() ? "" : ", ", dim == 0 ? "?" : text(dim));
  TROUPE_CHECK(found != all.end(), Code::invalid, where_, ": input \"", given.name, "\" is [", dims, "], field ",
               field.to_string(), " has [rows] before its extents",
               image ? ", or [rows, channels, height, width]" : "");
  values_[given.name] = Value{.tensor = tensor, .arranged = *found};
}

// ---- Nodes ----

/// What reads only numbers of the file puts out such numbers.
bool Importer::compute(const OnnxNode& node) {
  std::vector<const OnnxNumbers*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(find_numbers(i));
    if (inputs.back() == nullptr && has_input(i)) return false;
  }
  if (inputs.empty()) return false;
  std::optional<OnnxNumbers> made = with_context(here(), [&] { return computed_.computed(node, inputs); });
  if (made) constants_[output()] = std::move(*made);
  return made.has_value();
}

void Importer::add(const OnnxNode& node) {
  if (node.operation == "Constant") {
    OnnxNumbers made;
    if (const auto at = node.tensors.find("value"); at != node.tensors.end()) {
      made = at->second;
    } else if (const auto* list = node.list("value_ints")) {
      made = {.dims = {static_cast<std::int64_t>(list->size())}, .whole = true, .f32 = {}, .integers = *list};
    } else if (node.numbers.contains("value_int")) {
      made = {.dims = {}, .whole = true, .f32 = {}, .integers = {node.number("value_int", 0)}};
    } else {
      need(node.f32s.contains("value_float"), "has no numbers as its value");
      made = {.dims = {}, .whole = false, .f32 = {node.f32("value_float", 0)}, .integers = {}};
    }
    constants_[output()] = std::move(made);
    return;
  }
  const auto at = handlers().find(node.operation);
  if (at != handlers().end()) return (this->*at->second)(node);
  std::string known;
  for (const auto& [name, handler] : handlers()) known += text(known.empty() ? "" : ", ", name);
  refuse(text("no layer does this; change the model, or leave the node out, so that there are only ", known));
}

std::string Importer::here() const { return text(where_, ": node ", node_->name, " (", node_->operation, ")"); }
void Importer::refuse(const std::string& why) const { fail(Code::unsupported, text(here(), ": ", why)); }

// ---- What a node reads ----

const Importer::Value& Importer::value(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end())
    refuse(text("reads ", constants_.contains(name) ? "numbers of the file, \"" : "what no node before it puts out, \"",
                name, "\", where a layer reads what another one puts out"));
  return at->second;
}
std::string_view Importer::input_name(std::size_t index) const {
  need(has_input(index), "lacks an input");
  return node_->inputs[index];
}
const OnnxNumbers* Importer::find_numbers(std::size_t index) const {
  if (!has_input(index)) return nullptr;
  const auto at = constants_.find(node_->inputs[index]);
  return at == constants_.end() ? nullptr : &at->second;
}
const OnnxNumbers& Importer::numbers(std::size_t index) const {
  const OnnxNumbers* const found = find_numbers(index);
  if (found == nullptr) refuse(text("input ", index, " must be numbers that the file has"));
  return *found;
}
const std::vector<float>& Importer::f32s(std::size_t index) const {
  need(!numbers(index).whole, "has whole numbers where it needs f32");
  return numbers(index).f32;
}
const std::vector<std::int64_t>& Importer::integers(std::size_t index) const {
  need(numbers(index).whole && numbers(index).of_rows.empty(), "needs whole numbers that do not depend on the rows");
  return numbers(index).integers;
}
bool Importer::is_number(std::size_t index) const {
  const OnnxNumbers* const found = find_numbers(index);
  return found != nullptr && !found->whole && found->f32.size() == 1;
}
double Importer::number(std::size_t index) const { return decimal_of(numbers(index).f32[0]); }
std::vector<std::int64_t> Importer::axes(const OnnxNode& node) const {
  if (const auto* list = node.list("axes")) return *list;
  return find_numbers(1) != nullptr ? integers(1) : std::vector<std::int64_t>{};
}

// ---- What a node puts out ----

void Importer::give(Value made) {
  if (made.node == nullptr) made.node = node_;
  values_.insert_or_assign(output(), std::move(made));
}
void Importer::give_tensor(std::uint32_t tensor, Arrangement arranged) {
  give({.tensor = tensor, .arranged = std::move(arranged)});
}
void Importer::give_plain(std::uint32_t tensor) { give_tensor(tensor, Arrangement{shape(tensor), rows_}); }
/// The next step of what several nodes make, with what is known so far.
void Importer::give_next(Value from, Form form) {
  from.form = form;
  give(std::move(from));
}

std::uint32_t Importer::last_extent(std::uint32_t tensor) const {
  need(!shape(tensor).extents.empty(), "reads a single number");
  return shape(tensor).extents.back();
}
std::uint32_t Importer::add_layer(const std::string& wanted, Operation operation,
                                  const std::vector<std::uint32_t>& read, std::vector<ModelBuilder::Start> starts) {
  return model_.add(here(), wanted, std::move(operation), read, std::move(starts));
}

Importer::Value Importer::made(std::string_view name) {
  const Value found = value(name);
  switch (found.form) {
    case Form::tensor: return found;
    case Form::pending:
      return keep(name, add_layer(ModelBuilder::name_of(name), *found.operation, found.factors), found.arranged);
    case Form::product: return made_product(name, found, nullptr);
    case Form::rows: return made_embedding(name, found);
    case Form::normalized:
    case Form::weighted: return made_layer_norm(name, found, nullptr);
    case Form::factors:
      if (!found.has_erf && found.constant == 1 && found.factors.size() > 1)
        return keep(name, add_layer(ModelBuilder::name_of(name), Multiply{}, found.factors), found.arranged);
      node_ = found.node;
      refuse("multiplies or divides by numbers of the file, which no layer does; put them into the weights before it");
    case Form::softmax: node_ = found.node; refuse("stands before the end, where no layer does it");
    default:
      refuse(text("reads \"", name,
                  "\", a step of an operation that several nodes make; what follows is not known as one of these"));
  }
}
Importer::Value Importer::keep(std::string_view name, std::uint32_t tensor, Arrangement arranged) {
  Value made{.tensor = tensor, .arranged = std::move(arranged), .node = node_};
  values_.insert_or_assign(name, made);
  return made;
}

/// Whether the file's array is the tensor; one of a single extent is not a tensor [1, 1, n].
bool Importer::is_plain(const Value& value) const {
  const bool is_joined = value.arranged.count_axes() <= 2 && shape(value.tensor).extents.size() > 1;
  return value.arranged.is_plain() && !is_joined;
}
std::uint32_t Importer::plain(std::string_view name) {
  const Value found = made(name);
  if (is_plain(found)) return found.tensor;
  const auto layers = found.arranged.layers(shape(found.tensor));
  if (!layers)
    refuse(text("reads \"", name, "\", ", found.arranged.is_whole() ? "whose elements lie" : "a part of a tensor",
                found.arranged.is_whole() ? " as no layer puts them; only an attention cuts a tensor into heads"
                                          : ", which only an attention does"));
  std::uint32_t tensor = found.tensor;
  const std::string wanted = ModelBuilder::name_of(name);
  if (!layers->order.empty())
    tensor = add_layer(layers->flatten ? wanted + ".channels_first" : wanted, Transpose{layers->order}, {tensor});
  if (layers->flatten) tensor = add_layer(wanted, Flatten{}, {tensor});
  Arrangement arranged{shape(tensor), rows_};
  need(arranged.reshape(found.arranged.extents()), "reads an array whose rows are not its first extent");
  keep(name, tensor, std::move(arranged));
  return tensor;
}

Importer::Value Importer::readable(std::string_view name) {
  const Value found = made(name);
  const Arrangement& arranged = found.arranged;
  const bool flat = arranged.count_axes() > 0 && arranged.is_flat(arranged.count_axes() - 1);
  if (is_plain(found) || (!flat && arranged.is_whole())) return found;
  (void)plain(name);
  return value(name);
}

const std::map<std::string_view, Importer::Handler>& Importer::handlers() {
  static const std::map<std::string_view, Handler> all{{"Add", &Importer::add_two},
                                                       {"Attention", &Importer::attention},
                                                       {"AveragePool", &Importer::pool<AveragePool>},
                                                       {"BatchNormalization", &Importer::batch_norm},
                                                       {"Cast", &Importer::cast},
                                                       {"Concat", &Importer::concat},
                                                       {"Conv", &Importer::conv},
                                                       {"Div", &Importer::divide},
                                                       {"Dropout", &Importer::dropout},
                                                       {"Erf", &Importer::erf},
                                                       {"Expand", &Importer::expand},
                                                       {"Flatten", &Importer::flatten},
                                                       {"Gather", &Importer::gather},
                                                       {"Gelu", &Importer::gelu},
                                                       {"Gemm", &Importer::gemm},
                                                       {"GlobalAveragePool", &Importer::global_average_pool},
                                                       {"GlobalMaxPool", &Importer::global_max_pool},
                                                       {"GreaterOrEqual", &Importer::greater_or_equal},
                                                       {"Identity", &Importer::identity},
                                                       {"IsNaN", &Importer::is_nan},
                                                       {"LayerNormalization", &Importer::layer_norm},
                                                       {"LogSoftmax", &Importer::softmax},
                                                       {"MatMul", &Importer::matmul},
                                                       {"Max", &Importer::max},
                                                       {"MaxPool", &Importer::pool<MaxPool>},
                                                       {"Mul", &Importer::multiply},
                                                       {"Pad", &Importer::pad},
                                                       {"Pow", &Importer::power},
                                                       {"Reciprocal", &Importer::reciprocal},
                                                       {"ReduceMean", &Importer::reduce_mean},
                                                       {"ReduceSum", &Importer::reduce_sum},
                                                       {"Relu", &Importer::elementwise<Relu>},
                                                       {"Reshape", &Importer::reshape},
                                                       {"Shape", &Importer::shape_numbers},
                                                       {"Sigmoid", &Importer::elementwise<Sigmoid>},
                                                       {"Slice", &Importer::slice},
                                                       {"Softmax", &Importer::softmax},
                                                       {"Split", &Importer::split},
                                                       {"Sqrt", &Importer::square_root},
                                                       {"Squeeze", &Importer::squeeze},
                                                       {"Sub", &Importer::subtract},
                                                       {"Sum", &Importer::sum},
                                                       {"Tanh", &Importer::elementwise<Tanh>},
                                                       {"Transpose", &Importer::transpose},
                                                       {"Unsqueeze", &Importer::unsqueeze},
                                                       {"Where", &Importer::where}};
  return all;
}

}  // namespace troupe::detail
