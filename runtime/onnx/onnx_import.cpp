#include "runtime/onnx/onnx_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/onnx/detail/onnx_file.hpp"

namespace troupe {
namespace {

using detail::OnnxFile;
using detail::OnnxNode;
using detail::OnnxNumbers;
using Numbers = std::vector<std::int64_t>;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 31;

/// What a value of the file is in a graph. Beside tensors there are steps of what takes several nodes in ONNX and is
/// one layer here; a layer is made when the last of them is seen.
enum class Form {
  tensor,
  flat,     // all of the tensor in one extent
  means,    // of each channel, in an image of one element
  product,  // of the last extent and a matrix
  factors,  // the product of several tensors
  // An embedding that gives zeros for tokens below 0: Max, Gather; GreaterOrEqual, Cast, Unsqueeze.
  row,
  rows,
  known,
  known_number,
  known_factor,
  // L2Norm: the squares are factors; ReduceSum, Add, Sqrt, Div.
  sum_of_squares,
  more,
  norm,
  divided,
  // Gelu of exporters before opset 20: Div, Erf, Add, Mul.
  scaled,
  erf,
  one_more,
  twice,
  // Attention: Split, Reshape, Transpose; MatMul, Mul, Add, Softmax; MatMul, Transpose.
  part,
  apart,
  heads,
  columns,  // heads of keys, transposed
  products,
  scores,
  seen,
  shares,
  read,
  back,
  fill,  // [length, length] of -infinity
  later  // the same above the diagonal, zeros elsewhere
};

struct Value {
  Form form = Form::tensor;
  std::uint32_t tensor = 0;
  bool channels_first = false;          // in the file an image is [channels, height, width]
  std::string_view numbers;             // of the file, that it is made with
  double constant = 0;                  // epsilon
  std::uint32_t part = 0;               // 0: queries, 1: keys, 2: values
  std::uint32_t heads = 0, extent = 0;  // of attention: parts, and the length of what is filled
  std::vector<std::uint32_t> factors{};
};

/// The shortest decimal that is this f32: of what somebody wrote as 0.1, exactly that.
double decimal_of(float number) { return std::strtod(fmt::format("{}", number).c_str(), nullptr); }

std::uint32_t size_of(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max() ? static_cast<std::uint32_t>(number)
                                                                           : std::numeric_limits<std::uint32_t>::max();
}

std::vector<float> transposed(const std::vector<float>& from, std::size_t rows) {
  const std::size_t width = from.size() / rows;
  std::vector<float> to(from.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < width; ++i) to[i * rows + row] = from[row * width + i];
  return to;
}

class Importer {
 public:
  Importer(const OnnxFile& file, const std::vector<Field>& fields, std::string where)
      : file_(file), fields_(fields), where_(std::move(where)) {
    for (const Field& field : fields) {
      taken_.insert(field.name);
      tensors_.push_back({field.name, field.shape, field.dtype == DType::i32 ? field.classes : 0});
    }
    constants_ = file.initializers;
    for (const auto& input : file.inputs) add_input(input);
    for (const OnnxNode& node : file.nodes) {
      node_ = &node;
      add(node);
    }
  }

  OnnxModel finish() {
    TROUPE_CHECK(file_.outputs.size() == 1, Code::unsupported, where_, ": has ", file_.outputs.size(),
                 " outputs; a model that trains has one, the logits");
    const std::string_view output = file_.outputs[0].name;
    TROUPE_CHECK(values_.contains(output), Code::invalid, where_, ": no node puts out \"", output, "\"");
    made_.output = tensors_[plain(output)].name;
    TROUPE_CHECK(!made_.layers.empty(), Code::unsupported, where_, ": has no layers");
    made_.name = name_of(file_.name.empty() ? "onnx" : file_.name);
    return std::move(made_);
  }

 private:
  struct Tensor {
    std::string name;
    Shape shape;
    std::uint32_t classes = 0;  // of tokens
  };
  using Handler = void (Importer::*)(const OnnxNode&);
  static const std::map<std::string_view, Handler>& handlers();

  // ---- What is wrong ----

  std::string here() const { return text(where_, ": node ", node_->name, " (", node_->operation, ")"); }
  [[noreturn]] void refuse(const std::string& why) const { fail(Code::unsupported, text(here(), ": ", why)); }
  void need(bool holds, const char* why) const {
    if (!holds) refuse(why);
  }

  // ---- Names ----

  /// As a layer's name: PyTorch's /conv1/Conv_output_0 becomes conv1.Conv.
  static std::string name_of(std::string_view name) {
    std::string made;
    const bool path = name.starts_with('/');
    if (path && name.ends_with("_output_0")) name.remove_suffix(std::string_view{"_output_0"}.size());
    for (const char c : name.substr(path ? 1 : 0)) {
      const bool shows = static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) != 0x7f;
      made += path && c == '/' ? '.' : shows ? c : '_';
    }
    return made;
  }
  std::string free_name(const std::string& wanted) {
    std::string name = wanted.empty() ? "layer" : wanted;
    for (std::size_t n = 2; !taken_.insert(name).second; ++n) name = text(wanted, '_', n);
    return name;
  }
  /// Of a layer with numbers: so that they have the name that they have in the file, if that is of our form.
  std::string layer_name(std::string_view output, std::string_view numbers, std::string_view parameter) const {
    const std::string ending = text('.', parameter);
    if (numbers.size() > ending.size() && numbers.ends_with(ending)) {
      std::string stem = name_of(numbers.substr(0, numbers.size() - ending.size()));
      if (!taken_.contains(stem)) return stem;
    }
    return name_of(output);
  }

  // ---- Layers ----

  struct Start {
    std::string_view parameter;
    std::vector<float> numbers;
  };

  /// Adds a layer that reads those tensors; the tensor that it puts out.
  std::uint32_t add_layer(const std::string& wanted, Operation operation, const std::vector<std::uint32_t>& read,
                          std::vector<Start> starts = {}) {
    const std::string name = free_name(wanted);
    const std::string where = text(here(), ", as layer ", name);
    const std::string wrong = wrong_attribute(operation);
    TROUPE_CHECK(wrong.empty(), Code::unsupported, where, ": ", wrong);
    const LayerKind& kind = kind_of(operation);
    LayerShapes shapes{where, operation, {}};
    for (const std::uint32_t tensor : read) {
      const bool tokens = tensor < fields_.size() && fields_[tensor].dtype == DType::i32;
      TROUPE_CHECK(tokens == kind.reads_tokens, Code::unsupported, where, ": it reads ", tensors_[tensor].name,
                   tokens ? ", which has tokens" : ", which has no tokens");
      shapes.inputs.push_back(tensors_[tensor].shape);
      shapes.token_classes = tensors_[tensor].classes;
    }
    LayerResult result = kind.infer(shapes);
    check_count(where, result.output);
    for (const Parameter& parameter : result.parameters) {
      const auto at = std::ranges::find(starts, parameter.name, &Start::parameter);
      TROUPE_CHECK(at != starts.end() && at->numbers.size() == parameter.count_elements(), Code::invalid, where,
                   ": its ", parameter.name, " has ", at == starts.end() ? 0 : at->numbers.size(), " numbers, not ",
                   parameter.count_elements());
      made_.parameters[text(name, '.', parameter.name)] = std::move(at->numbers);
    }
    Layer layer{name, std::move(operation), {}};
    const bool follows = read.size() == 1 && read[0] + 1 == tensors_.size() && !made_.layers.empty();
    const bool begins = read.size() == 1 && read[0] == 0 && made_.layers.empty();
    for (const std::uint32_t tensor : read)
      if (!follows && !begins) layer.inputs.push_back(tensors_[tensor].name);
    made_.layers.push_back(std::move(layer));
    tensors_.push_back({name, std::move(result.output)});
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }

  static void check_count(const std::string& where, const Shape& shape) {
    std::uint64_t count = 1;
    for (const std::uint32_t extent : shape.extents) {
      TROUPE_CHECK(extent > 0 && extent <= kMaxTensorElements / count, Code::invalid, where, ": its output ",
                   shape.to_string(), " must have positive extents and at most ", kMaxTensorElements, " elements");
      count *= extent;
    }
  }

  const Shape& shape(std::uint32_t tensor) const { return tensors_[tensor].shape; }
  std::uint32_t width(std::uint32_t tensor) const {
    need(!shape(tensor).extents.empty(), "reads a single number");
    return shape(tensor).extents.back();
  }
  bool is_image(std::uint32_t tensor) const { return shape(tensor).extents.size() == 3; }

  // ---- Values ----

  const Value& value(std::string_view name) const {
    const auto at = values_.find(name);
    if (at == values_.end())
      refuse(text("reads ",
                  constants_.contains(name) ? "numbers of the file, \"" : "what no node before it puts out, \"", name,
                  "\", where a layer reads what another one puts out"));
    return at->second;
  }
  const Value& input(std::size_t index = 0) const {
    need(index < node_->inputs.size() && !node_->inputs[index].empty(), "lacks an input");
    return value(node_->inputs[index]);
  }
  bool has_input(std::size_t index) const { return index < node_->inputs.size() && !node_->inputs[index].empty(); }
  const OnnxNumbers* find_numbers(std::size_t index) const {
    if (!has_input(index)) return nullptr;
    const auto at = constants_.find(node_->inputs[index]);
    return at == constants_.end() ? nullptr : &at->second;
  }
  const OnnxNumbers& numbers(std::size_t index) const {
    const OnnxNumbers* const found = find_numbers(index);
    if (found == nullptr) refuse(text("input ", index, " must be numbers that the file has"));
    return *found;
  }
  std::vector<float> f32s(std::size_t index) const {
    need(!numbers(index).whole, "has whole numbers where it needs f32");
    return numbers(index).f32;
  }
  const Numbers& integers(std::size_t index) const {
    need(numbers(index).whole, "has f32 where it needs whole numbers");
    return numbers(index).integers;
  }
  /// One f32 that the file has.
  bool is_number(std::size_t index) const {
    const OnnxNumbers* const found = find_numbers(index);
    return found != nullptr && !found->whole && found->f32.size() == 1;
  }
  double number(std::size_t index) const { return decimal_of(numbers(index).f32[0]); }
  static bool is_near(double found, double wanted) { return std::abs(found - wanted) <= 1e-5 * std::abs(wanted); }

  std::string_view output() const { return node_->outputs.front(); }
  std::string own_name() const { return name_of(output()); }
  void give(Value made) { values_[output()] = std::move(made); }
  void give_tensor(std::uint32_t tensor, bool channels_first = false) {
    give({.tensor = tensor, .channels_first = channels_first});
  }
  /// The next step of a pattern, with what is known so far.
  void give_next(Value from, Form form) {
    from.form = form;
    give(std::move(from));
  }

  /// The tensor that has the value, in whatever order; makes the layers that stand for it.
  Value made(std::string_view name) {
    const Value found = value(name);
    switch (found.form) {
      case Form::tensor: return found;
      case Form::flat: return keep(name, add_layer(name_of(name), Flatten{}, {in_file_order(found, name)}));
      case Form::product:
        return keep(name, add_layer(layer_name(name, found.numbers, "weight"), dense(found.numbers, false),
                                    {found.tensor}, {{"weight", columns(found.numbers)}}));
      case Form::factors: return keep(name, add_layer(name_of(name), Multiply{}, found.factors));
      case Form::rows: return keep(name, add_embedding(name, found));
      default:
        refuse(text("reads \"", name,
                    "\", a step of an operation that several nodes make; what follows is not known as "
                    "one of these"));
    }
  }
  Value keep(std::string_view name, std::uint32_t tensor) { return values_[name] = Value{.tensor = tensor}; }

  /// The tensor whose elements lie as in the file.
  std::uint32_t in_file_order(const Value& found, std::string_view name) {
    if (!found.channels_first) return found.tensor;
    return add_layer(text(name_of(name), ".channels_first"), Transpose{{2, 0, 1}}, {found.tensor});
  }
  std::uint32_t plain(std::string_view name) {
    const Value found = made(name);
    if (!found.channels_first) return found.tensor;
    const std::uint32_t tensor = add_layer(name_of(name), Transpose{{2, 0, 1}}, {found.tensor});
    keep(name, tensor);
    return tensor;
  }
  std::uint32_t plain(std::size_t index) {
    (void)input(index);
    return plain(node_->inputs[index]);
  }
  /// An image as convolutions read it.
  std::uint32_t image(std::size_t index) {
    (void)input(index);
    const Value found = made(node_->inputs[index]);
    need(is_image(found.tensor), "reads what is no image [rows, channels, height, width]");
    if (found.channels_first) return found.tensor;
    return add_layer(text(name_of(node_->inputs[index]), ".channels_last"), Transpose{{1, 2, 0}}, {found.tensor});
  }

  void add_input(const detail::OnnxValue& given) {
    const auto named = std::ranges::find(fields_, given.name, &Field::name);
    const bool one = named == fields_.end() && file_.inputs.size() == 1 && !fields_.empty();
    TROUPE_CHECK(one || named != fields_.end(), Code::invalid, where_, ": has the input \"", given.name,
                 "\"; the data set has ", list_names());
    const auto field = static_cast<std::uint32_t>(one ? 0 : named - fields_.begin());
    TROUPE_CHECK((fields_[field].dtype == DType::i32) == given.whole, Code::invalid, where_, ": input \"", given.name,
                 "\" has ", given.whole ? "whole numbers" : "f32", ", which field ", fields_[field].to_string(),
                 " has not");
    const std::vector<std::uint32_t>& extents = shape(field).extents;
    const auto fits = [&](const std::vector<std::uint32_t>& wanted) {
      if (given.dims.size() != wanted.size() + 1) return false;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (given.dims[i + 1] != 0 && given.dims[i + 1] != wanted[i]) return false;
      return true;
    };
    Value made{.tensor = field};
    if (!fits(extents)) {
      const bool image = extents.size() == 3;
      const bool first = image && fits({extents[2], extents[0], extents[1]});
      const bool flat = image && extents[2] == 1 && fits({extents[0] * extents[1]});
      std::string dims;
      for (const std::int64_t dim : given.dims) dims += text(dims.empty() ? "" : ", ", dim == 0 ? "?" : text(dim));
      TROUPE_CHECK(first || flat, Code::invalid, where_, ": input \"", given.name, "\" is [", dims, "], field ",
                   fields_[field].to_string(), " has [rows] before its extents",
                   image ? ", or [rows, channels, height, width]" : "");
      made.channels_first = first;
      if (flat) made.form = Form::flat;
    }
    values_[given.name] = made;
  }
  std::string list_names() const {
    std::string names;
    for (const Field& field : fields_) names += text(names.empty() ? "" : ", ", field.to_string());
    return names;
  }

  void add(const OnnxNode& node) {
    const auto at = handlers().find(node.operation);
    if (at == handlers().end()) {
      std::string known;
      for (const auto& [name, handler] : handlers()) known += text(known.empty() ? "" : ", ", name);
      refuse(text("no layer does this; there are ", known));
    }
    (this->*at->second)(node);
  }

  // ---- Numbers ----

  const OnnxNumbers& matrix(std::string_view name) const {
    const OnnxNumbers& found = constants_.at(name);
    need(!found.whole && found.dims.size() == 2 && found.dims[0] > 0 && found.dims[1] > 0,
         "needs a matrix of f32 that the file has");
    return found;
  }
  /// Of MatMul: [inputs, units].
  Dense dense(std::string_view weight, bool bias) const {
    return {.units = size_of(matrix(weight).dims[1]), .flatten = false, .bias = bias};
  }
  std::vector<float> columns(std::string_view weight) const {
    const OnnxNumbers& from = matrix(weight);
    return transposed(from.f32, static_cast<std::size_t>(from.dims[0]));
  }

  // ---- Operations ----

  void constant(const OnnxNode& node) {
    const auto at = node.tensors.find("value");
    need(at != node.tensors.end(), "has no tensor as its value");
    constants_[output()] = at->second;
  }

  void identity(const OnnxNode&) {
    if (const OnnxNumbers* const found = find_numbers(0))
      constants_[output()] = *found;
    else
      give(input());
  }

  template <class Kind>
  void elementwise(const OnnxNode&) {
    add_elementwise(Kind{}, 1);
  }
  /// On each element, in the order in which the inputs lie, if they all do.
  void add_elementwise(Operation operation, std::size_t count) {
    std::vector<Value> read;
    for (std::size_t i = 0; i < count; ++i) {
      (void)input(i);
      read.push_back(made(node_->inputs[i]));
    }
    const bool first = std::ranges::all_of(read, &Value::channels_first);
    std::vector<std::uint32_t> tensors;
    for (std::size_t i = 0; i < count; ++i) tensors.push_back(first ? read[i].tensor : plain(i));
    give_tensor(add_layer(own_name(), std::move(operation), tensors), first);
  }

  void gelu(const OnnxNode& node) {
    need(node.text("approximate", "none") == "none", "is approximated by tanh; the layer gelu is exact");
    add_elementwise(Gelu{}, 1);
  }
  void dropout(const OnnxNode& node) {
    const double rate = is_number(1) ? number(1) : decimal_of(node.f32("ratio", 0.5F));
    add_elementwise(Dropout{rate}, 1);
  }
  void sum(const OnnxNode& node) {
    if (node.inputs.size() == 1) return give(input());
    add_elementwise(Add{}, node.inputs.size());
  }

  void add_two(const OnnxNode& node) {
    need(node.inputs.size() == 2, "reads other than two tensors");
    const std::size_t fixed = find_numbers(0) != nullptr ? 0 : 1, other = 1 - fixed;
    if (find_numbers(fixed) != nullptr) return add_numbers(fixed, input(other));
    if (input(0).form == Form::scores && input(1).form == Form::later) return mask(input(0), input(1));
    add_elementwise(Add{}, 2);
  }
  void add_numbers(std::size_t index, const Value& to) {
    if (to.form == Form::product) {
      give_tensor(add_layer(layer_name(output(), to.numbers, "weight"), dense(to.numbers, true), {to.tensor},
                            {{"weight", columns(to.numbers)}, {"bias", f32s(index)}}));
    } else if (to.form == Form::sum_of_squares && is_number(index)) {
      Value next = to;
      next.constant = number(index);
      give_next(next, Form::more);
    } else if (to.form == Form::erf && is_number(index)) {
      need(is_near(number(index), 1), "adds another number than 1 to erf, which no layer does");
      give_next(to, Form::one_more);
    } else {
      const std::uint32_t read = plain(1 - index);
      const Numbers& dims = numbers(index).dims;
      const std::vector<std::uint32_t>& extents = shape(read).extents;
      const bool for_all_rows = dims.size() == extents.size() + 1 && dims.front() == 1;
      need(
          extents.size() == 2 && std::equal(extents.begin(), extents.end(), dims.begin() + (for_all_rows ? 1 : 0),
                                            dims.end(), [](std::uint32_t one, std::int64_t two) { return one == two; }),
          "adds numbers that are neither a bias behind a MatMul nor a row for each place of a sequence");
      give_tensor(add_layer(layer_name(output(), node_->inputs[index], "weight"), Position{}, {read},
                            {{"weight", f32s(index)}}));
    }
  }
  void mask(const Value& scores, const Value& later) {
    need(shape(scores.tensor).extents[0] == later.extent, "masks another number of places than there are");
    give_next(scores, Form::seen);
  }

  void multiply(const OnnxNode& node) {
    need(node.inputs.size() == 2, "reads other than two tensors");
    const std::size_t fixed = find_numbers(0) != nullptr ? 0 : 1, other = 1 - fixed;
    if (find_numbers(fixed) != nullptr) return multiply_by(fixed, input(other));
    const Value one = input(0), two = input(1);
    if (one.form == Form::rows && two.form == Form::known_factor && one.tensor == two.tensor)
      return give_tensor(add_embedding(output(), one));
    if (two.form == Form::one_more && one.form == Form::tensor && one.tensor == two.tensor)
      return give_next(two, Form::twice);
    Value product{.form = Form::factors};
    for (std::size_t i = 0; i < 2; ++i) {
      // A product of more than two is several nodes in a file of ours.
      const Value read = input(i);
      const bool ours = read.form == Form::factors && node.inputs[i].starts_with(text(output(), ".product"));
      if (ours)
        product.factors.insert(product.factors.end(), read.factors.begin(), read.factors.end());
      else
        product.factors.push_back(plain(i));
    }
    product.tensor = product.factors.front();
    give(product);
  }
  void multiply_by(std::size_t index, const Value& read) {
    if (read.form == Form::products && is_number(index)) {
      const double each = shape(read.tensor).extents[1] / 3.0 / read.heads;
      need(is_near(number(index), 1 / std::sqrt(each)),
           "scales products of queries and keys by another number than 1 / sqrt(width / heads)");
      give_next(read, Form::scores);
    } else if (read.form == Form::divided) {
      give_tensor(add_layer(layer_name(output(), node_->inputs[index], "scale"), l2_norm(index, read), {read.tensor},
                            {{"scale", f32s(index)}}));
    } else if (read.form == Form::twice && is_number(index)) {
      need(is_near(number(index), 0.5), "halves GELU by another number than 0.5");
      give_tensor(add_layer(own_name(), Gelu{}, {read.tensor}), read.channels_first);
    } else {
      refuse("multiplies by numbers of the file, which no layer does");
    }
  }
  /// Its scale at the start is told where all are still alike.
  L2Norm l2_norm(std::size_t index, const Value& read) const {
    L2Norm norm{.epsilon = read.constant};
    const std::vector<float> scale = f32s(index);
    const bool alike = !scale.empty() && std::ranges::all_of(scale, [&](float one) { return one == scale[0]; });
    if (alike && scale[0] > 0) norm.scale = decimal_of(scale[0]);
    return norm;
  }

  void divide(const OnnxNode&) {
    if (is_number(1)) {
      need(is_near(number(1), std::sqrt(2.0)), "divides by a number, which no layer does");
      (void)input();
      return give_next(made(node_->inputs[0]), Form::scaled);
    }
    const std::uint32_t read = plain(0);
    const Value by = input(1);
    need(by.form == Form::norm && by.tensor == read, "divides by something else than its norm");
    give_next(by, Form::divided);
  }
  void erf(const OnnxNode&) {
    need(input().form == Form::scaled, "is no part of a GELU");
    give_next(input(), Form::erf);
  }
  void sqrt(const OnnxNode&) {
    need(input().form == Form::more, "is no part of an L2 norm");
    give_next(input(), Form::norm);
  }
  void reduce_sum(const OnnxNode& node) {
    const Value read = input();
    need(read.form == Form::factors && read.factors.size() == 2 && read.factors[0] == read.factors[1],
         "sums up something else than squares");
    need(node.number("keepdims", 1) == 1 && is_last(axes(node), shape(read.tensor)),
         "sums up over another than the last extent");
    give_next(read, Form::sum_of_squares);
  }
  /// Of an attribute, or, since opset 13, of the second input.
  Numbers axes(const OnnxNode& node) const {
    if (const auto* list = node.list("axes")) return *list;
    return find_numbers(1) != nullptr ? integers(1) : Numbers{};
  }
  static bool is_last(const Numbers& axes, const Shape& shape) {
    return axes.size() == 1 && (axes[0] == -1 || axes[0] == static_cast<std::int64_t>(shape.extents.size()));
  }

  void conv(const OnnxNode& node) {
    const OnnxNumbers& weight = numbers(1);
    need(!weight.whole && weight.dims.size() == 4, "has no weights of an image's kernel");
    Conv2d made{.filters = size_of(weight.dims[0]), .bias = has_input(2)};
    made.kernel = {size_of(weight.dims[2]), size_of(weight.dims[3])};
    if (const auto* shape = node.list("kernel_shape"))
      need(shape->size() == 2 && (*shape)[0] == weight.dims[2] && (*shape)[1] == weight.dims[3],
           "has weights of another kernel");
    made.stride = pair(node, "strides");
    made.dilation = pair(node, "dilations");
    made.padding = padding(node);
    made.groups = size_of(node.number("group", 1));
    const std::uint32_t read = image(0);
    const std::uint64_t channels = shape(read).extents[2];
    need(made.groups > 0 && static_cast<std::uint64_t>(weight.dims[1]) * made.groups == channels,
         "has weights of another number of channels than its input");
    std::vector<Start> starts{{"weight", weight.f32}};
    if (made.bias) starts.push_back({"bias", f32s(2)});
    give_tensor(add_layer(layer_name(output(), node.inputs[1], "weight"), made, {read}, std::move(starts)), true);
  }
  Size2 pair(const OnnxNode& node, std::string_view attribute) const {
    const auto* list = node.list(attribute);
    if (list == nullptr) return {};
    need(list->size() == 2, "is not of images: one of its attributes has other than two numbers");
    return {size_of((*list)[0]), size_of((*list)[1])};
  }
  Size2 padding(const OnnxNode& node) const {
    const std::string_view automatic = node.text("auto_pad", "NOTSET");
    need(automatic == "NOTSET" || automatic == "VALID", "pads by auto_pad; write the numbers (pads) instead");
    const auto* list = node.list("pads");
    if (list == nullptr) return {0, 0};
    need(list->size() == 4 && (*list)[0] == (*list)[2] && (*list)[1] == (*list)[3],
         "pads the two sides of an image differently");
    return {size_of((*list)[0]), size_of((*list)[1])};
  }
  template <class Pool>
  void pool(const OnnxNode& node) {
    Pool made;
    made.kernel = pair(node, "kernel_shape");
    made.stride = pair(node, "strides");
    made.padding = padding(node);
    if (made.stride == made.kernel) made.stride = {0, 0};
    need(node.outputs.size() == 1 && node.number("ceil_mode", 0) == 0 && pair(node, "dilations") == Size2{},
         "rounds up, dilates, or gives indices, which no layer does");
    const bool pads = made.padding != Size2{0, 0};
    if constexpr (std::is_same_v<Pool, AveragePool>)
      need(!pads || node.number("count_include_pad", 0) == 0,
           "counts padding as zeros (count_include_pad), which no layer does");
    give_tensor(add_layer(own_name(), made, {image(0)}), true);
  }
  void global_average_pool(const OnnxNode&) { give({.form = Form::means, .tensor = image(0), .channels_first = true}); }
  /// PyTorch's adaptive pool to one element.
  void reduce_mean(const OnnxNode& node) {
    Numbers over = axes(node);
    for (std::int64_t& axis : over) axis = axis < 0 ? axis + 4 : axis;
    std::ranges::sort(over);
    need(over == Numbers{2, 3}, "takes means over other extents than height and width");
    const std::uint32_t read = image(0);
    if (node.number("keepdims", 1) == 1) return give({.form = Form::means, .tensor = read, .channels_first = true});
    give_tensor(add_layer(own_name(), GlobalAveragePool{}, {read}));
  }

  void flatten(const OnnxNode& node) {
    need(node.number("axis", 1) == 1, "keeps more extents than the rows");
    flatten_input();
  }
  void flatten_input() {
    if (input().form == Form::means) return give_tensor(add_layer(own_name(), GlobalAveragePool{}, {input().tensor}));
    const Value read = made(node_->inputs[0]);
    give({.form = Form::flat, .tensor = read.tensor, .channels_first = read.channels_first});
  }
  void squeeze(const OnnxNode&) {
    need(input().form == Form::means, "removes an extent of something else than a global pool");
    flatten_input();
  }
  void reshape(const OnnxNode&) {
    const Numbers to = integers(1);
    const Value read = input();
    if (read.form == Form::part) {
      const std::int64_t width = shape(read.tensor).extents[1] / 3;
      need(to.size() == 4 && to[0] == 0 && to[1] == 0 && to[2] > 0 && to[3] > 0 && to[2] <= width && to[3] <= width &&
               to[2] * to[3] == width,
           "cuts queries, keys or values into other parts than heads");
      Value next = read;
      next.heads = size_of(to[2]);
      return give_next(next, Form::apart);
    }
    if (read.form == Form::back) {
      const std::int64_t width = shape(read.tensor).extents[1] / 3;
      need(to == Numbers{0, 0, width}, "joins other parts than heads");
      return give_tensor(add_layer(own_name(), Attention{read.heads, read.constant != 0}, {read.tensor}));
    }
    const std::uint64_t count = read.form == Form::means ? shape(read.tensor).extents.back()
                                                         : shape(made(node_->inputs[0]).tensor).count_elements();
    need(to.size() == 2 && (to[1] == -1 || static_cast<std::uint64_t>(to[1]) == count),
         "does something else than flatten; use layers that know their shapes");
    flatten_input();
  }

  void gemm(const OnnxNode& node) {
    need(node.f32("alpha", 1) == 1 && (node.f32("beta", 1) == 1 || !has_input(2)) && node.number("transA", 0) == 0,
         "scales or transposes what it reads");
    (void)numbers(1);
    const OnnxNumbers& given = matrix(node.inputs[1]);
    const bool by_units = node.number("transB", 0) == 1;
    const auto units = static_cast<std::size_t>(given.dims[by_units ? 0 : 1]);
    std::vector<float> weight = by_units ? given.f32 : columns(node.inputs[1]);
    const std::string name = layer_name(output(), node.inputs[1], "weight");
    std::vector<Start> starts;
    const std::uint32_t read = flat_input(name, weight, units);
    starts.push_back({"weight", std::move(weight)});
    if (has_input(2)) starts.push_back({"bias", f32s(2)});
    give_tensor(add_layer(name, Dense{.units = size_of(static_cast<std::int64_t>(units)), .bias = has_input(2)}, {read},
                          std::move(starts)));
  }
  /// A dense layer flattens what it reads, so that no layer stands for a Flatten of ours before it; nor for one of an
  /// image whose channels came first: then the weights are put into the other order.
  std::uint32_t flat_input(const std::string& name, std::vector<float>& weight, std::size_t units) {
    const Value read = input();
    if (read.form != Form::flat) return plain(0);
    const Shape& of = shape(read.tensor);
    need(weight.size() == units * of.count_elements(), "has weights for another number of elements than it reads");
    const bool is_input =
        std::ranges::find(file_.inputs, node_->inputs[0], &detail::OnnxValue::name) != file_.inputs.end();
    if (!read.channels_first) return is_input || node_->inputs[0].starts_with(name + ".flat") ? read.tensor : plain(0);
    const std::size_t places = std::size_t{of.extents[0]} * of.extents[1];
    const std::size_t each = weight.size() / units;
    for (std::size_t unit = 0; unit < units; ++unit) {
      const auto row = weight.begin() + static_cast<std::ptrdiff_t>(unit * each);
      const std::vector<float> last = transposed({row, row + static_cast<std::ptrdiff_t>(each)}, each / places);
      std::ranges::copy(last, row);
    }
    return read.tensor;
  }
  void matmul(const OnnxNode& node) {
    need(node.inputs.size() == 2, "reads other than two tensors");
    if (find_numbers(1) != nullptr) {
      const std::uint32_t read = plain(0);
      const OnnxNumbers& weight = matrix(node.inputs[1]);
      need(weight.dims[0] == width(read), "has a matrix of another width than what it reads");
      return give({.form = Form::product, .tensor = read, .numbers = node.inputs[1]});
    }
    const Value one = input(0), two = input(1);
    need(one.tensor == two.tensor && one.heads == two.heads, "multiplies two tensors, which only an attention does");
    if (one.form == Form::heads && one.part == 0 && two.form == Form::columns && two.part == 1)
      return give_next(one, Form::products);
    need(one.form == Form::shares && two.form == Form::heads && two.part == 2,
         "multiplies two tensors, which only an attention does");
    give_next(one, Form::read);
  }

  void concat(const OnnxNode& node) {
    const std::int64_t axis = node.number("axis", 0);
    std::vector<Value> read;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      (void)input(i);
      read.push_back(made(node.inputs[i]));
    }
    need(!read.empty(), "reads nothing");
    const auto extents = static_cast<std::int64_t>(shape(read[0].tensor).extents.size());
    std::vector<std::uint32_t> tensors;
    const bool first = (axis == 1 || axis == -3) && std::ranges::all_of(read, &Value::channels_first);
    need(first || axis == -1 || axis == extents,
         "joins tensors in another extent than the last, or an image's channels");
    for (std::size_t i = 0; i < read.size(); ++i) tensors.push_back(first ? read[i].tensor : plain(i));
    if (tensors.size() == 1) return give_tensor(tensors[0], first);
    give_tensor(add_layer(own_name(), Concat{}, tensors), first);
  }
  void split(const OnnxNode& node) {
    const std::uint32_t read = plain(0);
    const std::vector<std::uint32_t>& extents = shape(read).extents;
    const std::int64_t axis = node.number("axis", 0);
    need(extents.size() == 2 && extents[1] % 3 == 0 && (axis == 2 || axis == -1) && node.outputs.size() == 3,
         "cuts into other parts than queries, keys and values side by side");
    if (find_numbers(1) != nullptr)
      need(integers(1) == Numbers(3, extents[1] / 3), "cuts queries, keys and values into parts of different sizes");
    for (std::uint32_t part = 0; part < 3; ++part)
      values_[node.outputs[part]] = {.form = Form::part, .tensor = read, .part = part};
  }
  void transpose(const OnnxNode& node) {
    const auto* order = node.list("perm");
    need(order != nullptr && !order->empty() && (*order)[0] == 0, "moves the rows");
    const Value read = input();
    if (read.form == Form::apart && read.part == 1 && *order == Numbers{0, 2, 3, 1})
      return give_next(read, Form::columns);
    if (read.form == Form::apart && read.part != 1 && *order == Numbers{0, 2, 1, 3})
      return give_next(read, Form::heads);
    if (read.form == Form::read && *order == Numbers{0, 2, 1, 3}) return give_next(read, Form::back);
    const Value of = made(node.inputs[0]);
    if (of.channels_first && *order == Numbers{0, 2, 3, 1}) return give_tensor(of.tensor);
    if (!of.channels_first && is_image(of.tensor) && *order == Numbers{0, 3, 1, 2}) return give_tensor(of.tensor, true);
    Transpose made;
    for (const std::int64_t extent : std::span(*order).subspan(1))
      made.order.push_back(size_of(extent > 0 ? extent - 1 : -1));
    give_tensor(add_layer(own_name(), made, {plain(0)}));
  }

  void batch_norm(const OnnxNode& node) {
    need(node.number("training_mode", 0) == 0 && node.outputs.size() == 1,
         "is written as it trains; export the model as it is evaluated");
    (void)input();
    BatchNorm made;
    made.momentum = decimal_of(static_cast<float>(1 - decimal_of(node.f32("momentum", 0.9F))));
    made.epsilon = decimal_of(node.f32("epsilon", 1e-5F));
    const Value given = this->made(node.inputs[0]);
    const std::uint32_t read = is_image(given.tensor) ? image(0) : plain(0);
    std::vector<Start> starts;
    std::size_t index = 0;
    for (const std::string_view parameter : {"weight", "bias", "running_mean", "running_var"})
      starts.push_back({parameter, f32s(++index)});
    give_tensor(add_layer(layer_name(output(), node.inputs[1], "weight"), made, {read}, std::move(starts)),
                is_image(read));
  }
  void layer_norm(const OnnxNode& node) {
    const std::uint32_t read = plain(0);
    const std::int64_t axis = node.number("axis", -1);
    need(axis == -1 || axis == static_cast<std::int64_t>(shape(read).extents.size()),
         "norms over more than the last extent");
    const std::size_t each = width(read);
    std::vector<Start> starts{{"weight", f32s(1)}, {"bias", has_input(2) ? f32s(2) : std::vector<float>(each)}};
    give_tensor(add_layer(layer_name(output(), node.inputs[1], "weight"),
                          LayerNorm{decimal_of(node.f32("epsilon", 1e-5F))}, {read}, std::move(starts)));
  }

  bool is_zero(std::size_t index) const {
    const OnnxNumbers* const found = find_numbers(index);
    return found != nullptr && found->whole && found->integers == Numbers{0};
  }
  void max(const OnnxNode&) {
    need(is_zero(1) && input().tensor < fields_.size(), "is no part of an embedding");
    give_next(input(), Form::row);
  }
  void greater_or_equal(const OnnxNode&) {
    need(is_zero(1) && input().tensor < fields_.size(), "is no part of an embedding");
    give_next(input(), Form::known);
  }
  void gather(const OnnxNode& node) {
    need(node.number("axis", 0) == 0, "takes other than rows");
    (void)numbers(0);
    (void)matrix(node.inputs[0]);
    const Value tokens = input(1);
    need(tokens.form == Form::row || (tokens.form == Form::tensor && tokens.tensor < fields_.size()),
         "takes rows that are not numbered by tokens of the data");
    give({.form = Form::rows, .tensor = tokens.tensor, .numbers = node.inputs[0]});
  }
  std::uint32_t add_embedding(std::string_view name, const Value& rows) {
    const OnnxNumbers& weight = matrix(rows.numbers);
    return add_layer(layer_name(name, rows.numbers, "weight"),
                     Embedding{.vocabulary = size_of(weight.dims[0]), .width = size_of(weight.dims[1])}, {rows.tensor},
                     {{"weight", weight.f32}});
  }
  void cast(const OnnxNode&) {
    const Value read = input();
    if (read.form == Form::known) return give_next(read, Form::known_number);
    need(read.form == Form::tensor && read.tensor < fields_.size() && fields_[read.tensor].dtype == DType::i32,
         "changes the type of numbers");
    give(read);
  }
  void unsqueeze(const OnnxNode& node) {
    need(input().form == Form::known_number && axes(node) == Numbers{-1}, "is no part of an embedding");
    give_next(input(), Form::known_factor);
  }

  void constant_of_shape(const OnnxNode& node) {
    const Numbers& extents = integers(0);
    const auto at = node.tensors.find("value");
    need(extents.size() == 2 && extents[0] == extents[1] && at != node.tensors.end() && at->second.f32.size() == 1 &&
             at->second.f32[0] == -std::numeric_limits<float>::infinity(),
         "is no mask of an attention");
    give({.form = Form::fill, .extent = size_of(extents[0])});
  }
  void trilu(const OnnxNode& node) {
    const OnnxNumbers* const above = find_numbers(1);
    need(
        input().form == Form::fill && node.number("upper", 1) == 1 && above != nullptr && above->integers == Numbers{1},
        "is no mask of an attention");
    give_next(input(), Form::later);
  }
  void softmax(const OnnxNode& node) {
    Value read = input();
    const std::int64_t axis = node.number("axis", -1);
    if (read.form == Form::scores || read.form == Form::seen) {
      need(axis == -1 || axis == 3, "is over another than the last extent");
      read.constant = read.form == Form::seen ? 1 : 0;
      return give_next(read, Form::shares);
    }
    need(file_.outputs.size() == 1 && file_.outputs[0].name == output(),
         "stands before the end, where no layer does it");
    give(read);
  }

  const OnnxFile& file_;
  const std::vector<Field>& fields_;
  const std::string where_;
  std::map<std::string_view, OnnxNumbers> constants_;
  std::map<std::string_view, Value> values_;
  std::vector<Tensor> tensors_;     // fields, then what layers put out
  std::set<std::string> taken_;     // names
  const OnnxNode* node_ = nullptr;  // that is being added
  OnnxModel made_;
};

const std::map<std::string_view, Importer::Handler>& Importer::handlers() {
  static const std::map<std::string_view, Handler> all{{"Add", &Importer::add_two},
                                                       {"AveragePool", &Importer::pool<AveragePool>},
                                                       {"BatchNormalization", &Importer::batch_norm},
                                                       {"Cast", &Importer::cast},
                                                       {"Concat", &Importer::concat},
                                                       {"Constant", &Importer::constant},
                                                       {"ConstantOfShape", &Importer::constant_of_shape},
                                                       {"Conv", &Importer::conv},
                                                       {"Div", &Importer::divide},
                                                       {"Dropout", &Importer::dropout},
                                                       {"Erf", &Importer::erf},
                                                       {"Flatten", &Importer::flatten},
                                                       {"Gather", &Importer::gather},
                                                       {"Gelu", &Importer::gelu},
                                                       {"Gemm", &Importer::gemm},
                                                       {"GlobalAveragePool", &Importer::global_average_pool},
                                                       {"GreaterOrEqual", &Importer::greater_or_equal},
                                                       {"Identity", &Importer::identity},
                                                       {"LayerNormalization", &Importer::layer_norm},
                                                       {"LogSoftmax", &Importer::softmax},
                                                       {"MatMul", &Importer::matmul},
                                                       {"Max", &Importer::max},
                                                       {"MaxPool", &Importer::pool<MaxPool>},
                                                       {"Mul", &Importer::multiply},
                                                       {"ReduceMean", &Importer::reduce_mean},
                                                       {"ReduceSum", &Importer::reduce_sum},
                                                       {"Relu", &Importer::elementwise<Relu>},
                                                       {"Reshape", &Importer::reshape},
                                                       {"Sigmoid", &Importer::elementwise<Sigmoid>},
                                                       {"Softmax", &Importer::softmax},
                                                       {"Split", &Importer::split},
                                                       {"Sqrt", &Importer::sqrt},
                                                       {"Squeeze", &Importer::squeeze},
                                                       {"Sum", &Importer::sum},
                                                       {"Tanh", &Importer::elementwise<Tanh>},
                                                       {"Transpose", &Importer::transpose},
                                                       {"Trilu", &Importer::trilu},
                                                       {"Unsqueeze", &Importer::unsqueeze}};
  return all;
}

}  // namespace

OnnxModel read_onnx(std::span<const std::byte> bytes, const std::vector<Field>& fields, const std::string& where) {
  const OnnxFile file = [&] {
    try {
      return detail::parse_onnx(bytes);
    } catch (const Error& error) {
      fail(error.code(), text(where, ": ", error.what()));
    }
  }();
  OnnxModel model = Importer{file, fields, where}.finish();
  model.hash = xxh3(bytes);
  return model;
}

OnnxModel read_onnx_file(const std::string& path, const std::vector<Field>& fields) {
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  TROUPE_CHECK(file.is_open(), Code::invalid, path, ": cannot be opened");
  const auto size_bytes = static_cast<std::int64_t>(file.tellg());
  TROUPE_CHECK(size_bytes >= 0 && static_cast<std::uint64_t>(size_bytes) < kMostFileBytes, Code::unsupported, path,
               ": is no file of less than 2 GiB");
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_bytes));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), size_bytes);
  TROUPE_CHECK(file.gcount() == size_bytes, Code::invalid, path, ": cannot be read");
  return read_onnx(bytes, fields, path);
}

}  // namespace troupe
