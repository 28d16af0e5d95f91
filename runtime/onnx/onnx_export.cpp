#include "runtime/onnx/onnx_export.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/onnx/detail/protobuf.hpp"

namespace troupe {
namespace {

using detail::ProtobufMessage;
using Names = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

// Field numbers and types from onnx.proto of ONNX 1.15.
constexpr std::int64_t kIrVersion = 9, kOpset = 20;
constexpr std::int64_t kFloat = 1, kInt64 = 7;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 31;

ProtobufMessage tensor_of(const std::string& name, std::int64_t type, const Numbers& dims) {
  ProtobufMessage tensor;
  for (const std::int64_t dim : dims) tensor.number(1, dim);
  return tensor.number(2, type).bytes(8, name);
}

template <class Element>
std::string_view bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

/// A node's attributes.
class Attributes {
 public:
  Attributes& number(std::string_view name, std::int64_t value) {
    constexpr std::int64_t kType = 2;
    return add(ProtobufMessage{}.bytes(1, name).number(3, value).number(20, kType));
  }
  Attributes& f32(std::string_view name, double value) {
    constexpr std::int64_t kType = 1;
    return add(ProtobufMessage{}.bytes(1, name).f32(2, static_cast<float>(value)).number(20, kType));
  }
  Attributes& list(std::string_view name, const Numbers& values) {
    constexpr std::int64_t kType = 7;
    ProtobufMessage made;
    made.bytes(1, name);
    for (const std::int64_t value : values) made.number(8, value);
    return add(made.number(20, kType));
  }
  Attributes& tensor(std::string_view name, const ProtobufMessage& value) {
    constexpr std::int64_t kType = 4;
    return add(ProtobufMessage{}.bytes(1, name).message(5, value).number(20, kType));
  }
  const std::vector<ProtobufMessage>& all() const noexcept { return all_; }

 private:
  Attributes& add(ProtobufMessage attribute) {
    all_.push_back(std::move(attribute));
    return *this;
  }
  std::vector<ProtobufMessage> all_;
};

/// ONNX convolves and pools images as [rows, channels, height, width]; here they are [rows, height, width, channels]. A
/// tensor is transposed when a layer first reads it in the other order, and then exists in both.
class OnnxGraph {
 public:
  explicit OnnxGraph(const Graph& graph) : graph_(graph), tensors_(graph.fields().size() + graph.layers().size()) {
    for (const Field& field : graph.fields()) taken_.insert(field.name);
    for (const Layer& layer : graph.layers()) taken_.insert(layer.name);
    for (const Parameter& parameter : graph.parameters()) {
      parameters_.push_back(free_name(parameter.name));
      by_columns_.push_back(false);
    }
    add_inputs();
    for (layer_ = 0; layer_ < graph.layers().size(); ++layer_)
      std::visit([this](const auto& operation) { add(operation); }, graph.layers()[layer_].operation);
    body_.bytes(2, graph.name());
  }

  void write(const ParameterNumbers& numbers, const OnnxBytes& to) const {
    std::vector<std::string> heads;  // of the parameters' tensors, up to their values
    std::uint64_t body_bytes = body_.str().size();
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const Parameter& parameter = graph_.parameters()[p];
      const std::uint64_t data_bytes = parameter.count_elements() * sizeof(float);
      Numbers dims(parameter.extents.begin(), parameter.extents.end());
      if (by_columns_[p]) std::ranges::reverse(dims);
      const ProtobufMessage tensor = tensor_of(parameters_[p], kFloat, dims).start(9, data_bytes);
      constexpr std::uint32_t kInitializer = 5;
      heads.push_back(ProtobufMessage{}.start(kInitializer, tensor.str().size() + data_bytes).str() + tensor.str());
      body_bytes += heads.back().size() + data_bytes;
    }
    ProtobufMessage model;
    model.number(1, kIrVersion).bytes(2, "troupe");
    model.message(8, ProtobufMessage{}.bytes(1, "").number(2, kOpset)).start(7, body_bytes);
    TROUPE_CHECK(model.str().size() + body_bytes < kMostFileBytes, Code::unsupported, "graph ", graph_.name(),
                 ": its ONNX file would have ", body_bytes, " bytes; readers of ONNX take less than ", kMostFileBytes);
    const auto write_text = [&](const std::string& bytes) { to(std::as_bytes(std::span(bytes))); };
    write_text(model.str());
    write_text(body_.str());
    std::vector<float> values, columns;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      write_text(heads[p]);
      values.resize(graph_.parameters()[p].count_elements());
      numbers(p, values);
      if (by_columns_[p]) {
        const std::size_t rows = graph_.parameters()[p].extents[0], width = values.size() / rows;
        columns.resize(values.size());
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t i = 0; i < width; ++i) columns[i * rows + row] = values[row * width + i];
        values.swap(columns);
      }
      to(std::as_bytes(std::span(values)));
    }
  }

 private:
  /// The names of one tensor in its two orders; empty: it does not exist in that order.
  struct Tensor {
    std::string plain, channels_first;
  };

  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (std::size_t n = 2; !taken_.insert(name).second; ++n) name = text(wanted, '_', n);
    return name;
  }
  const std::string& own_name() const { return graph_.layers()[layer_].name; }
  std::string part_name(std::string_view part) { return free_name(text(own_name(), '.', part)); }

  void add_value(std::uint32_t list, const std::string& name, std::int64_t type, const Shape& shape) {
    ProtobufMessage dims;
    dims.message(1, ProtobufMessage{}.bytes(2, "rows"));
    for (const std::uint32_t extent : shape.extents) dims.message(1, ProtobufMessage{}.number(1, extent));
    const ProtobufMessage tensor = ProtobufMessage{}.number(1, type).message(2, dims);
    body_.message(list, ProtobufMessage{}.bytes(1, name).message(2, ProtobufMessage{}.message(1, tensor)));
  }

  void add_inputs() {
    std::set<std::uint32_t> read;
    for (std::size_t l = 0; l < graph_.layers().size(); ++l) {
      const auto& inputs = graph_.inputs_of(l);
      const bool is_loss = kind_of(graph_.layers()[l].operation).is_loss;
      read.insert(inputs.begin(), is_loss ? inputs.begin() + 1 : inputs.end());
    }
    for (std::uint32_t f = 0; f < graph_.fields().size(); ++f) {
      const Field& field = graph_.fields()[f];
      if (!read.contains(f)) continue;
      constexpr std::uint32_t kInput = 11;
      add_value(kInput, field.name, field.dtype == DType::i32 ? kInt64 : kFloat, field.shape);
      tensors_[f].plain = field.name;
    }
  }

  void node(std::string_view operation, const Names& inputs, const std::string& output,
            const Attributes& attributes = {}) {
    nodes(operation, inputs, {output}, attributes);
  }
  void nodes(std::string_view operation, const Names& inputs, const Names& outputs, const Attributes& attributes) {
    ProtobufMessage made;
    for (const std::string& input : inputs) made.bytes(1, input);
    for (const std::string& output : outputs) made.bytes(2, output);
    made.bytes(3, outputs.front()).bytes(4, operation);
    for (const ProtobufMessage& attribute : attributes.all()) made.message(5, attribute);
    body_.message(1, made);
  }
  /// A node whose output only this layer reads.
  std::string step(std::string_view operation, const Names& inputs, std::string_view part,
                   const Attributes& attributes = {}) {
    std::string output = part_name(part);
    node(operation, inputs, output, attributes);
    return output;
  }
  std::string constant(std::string_view part, const Numbers& values) {
    return constant(part, {static_cast<std::int64_t>(values.size())}, kInt64, bytes_of(values));
  }
  std::string constant(std::string_view part, double value) {
    return constant(part, {}, kFloat, bytes_of(std::vector<float>{static_cast<float>(value)}));
  }
  std::string constant(std::string_view part, const Numbers& dims, std::int64_t type, std::string_view bytes) {
    std::string name = part_name(part);
    constexpr std::uint32_t kInitializer = 5;
    body_.message(kInitializer, tensor_of(name, type, dims).bytes(9, bytes));
    return name;
  }

  std::uint32_t input_tensor() const { return graph_.inputs_of(layer_).front(); }
  const Shape& input_shape() const { return graph_.shape_of(input_tensor()); }
  Tensor& output_tensor() { return tensors_[graph_.output_tensor(layer_)]; }
  std::string plain(std::uint32_t tensor) {
    Tensor& names = tensors_[tensor];
    if (names.plain.empty()) {
      names.plain = free_name(names.channels_first + ".nhwc");
      node("Transpose", {names.channels_first}, names.plain, Attributes{}.list("perm", {0, 2, 3, 1}));
    }
    return names.plain;
  }
  std::string channels_first(std::uint32_t tensor) {
    Tensor& names = tensors_[tensor];
    if (names.channels_first.empty()) {
      names.channels_first = free_name(names.plain + ".nchw");
      node("Transpose", {names.plain}, names.channels_first, Attributes{}.list("perm", {0, 3, 1, 2}));
    }
    return names.channels_first;
  }
  /// The layer's parameters by name: weight, bias.
  std::string parameter(std::string_view name) const { return parameters_[find_parameter(name)]; }
  std::size_t find_parameter(std::string_view name) const {
    const auto at = std::ranges::find(graph_.parameters(), text(own_name(), '.', name), &Parameter::name);
    return static_cast<std::size_t>(at - graph_.parameters().begin());
  }

  /// An operation on each element, in the order in which the inputs exist.
  void add_elementwise(std::string_view operation, const Names& more = {}, const Attributes& attributes = {}) {
    const auto& read = graph_.inputs_of(layer_);
    const bool first = std::ranges::all_of(read, [&](std::uint32_t t) { return !tensors_[t].channels_first.empty(); });
    Names inputs;
    for (const std::uint32_t tensor : read) inputs.push_back(first ? channels_first(tensor) : plain(tensor));
    inputs.insert(inputs.end(), more.begin(), more.end());
    node(operation, inputs, own_name(), attributes);
    (first ? output_tensor().channels_first : output_tensor().plain) = own_name();
  }
  void add_plain(std::string_view operation, const Names& inputs, const Attributes& attributes = {}) {
    node(operation, inputs, own_name(), attributes);
    output_tensor().plain = own_name();
  }
  void add_channels_first(std::string_view operation, const Names& inputs, const Attributes& attributes) {
    node(operation, inputs, own_name(), attributes);
    output_tensor().channels_first = own_name();
  }

  void add(const Dense& dense) {
    std::string read = plain(input_tensor());
    if (dense.flatten) {
      if (input_shape().extents.size() > 1) read = step("Flatten", {read}, "flat");
      Names inputs{read, parameter("weight")};
      if (dense.bias) inputs.push_back(parameter("bias"));
      return add_plain("Gemm", inputs, Attributes{}.number("transB", 1));
    }
    by_columns_[find_parameter("weight")] = true;
    if (!dense.bias) return add_plain("MatMul", {read, parameter("weight")});
    add_plain("Add", {step("MatMul", {read, parameter("weight")}, "product"), parameter("bias")});
  }
  void add(const Conv2d& conv) {
    Names inputs{channels_first(input_tensor()), parameter("weight")};
    if (conv.bias) inputs.push_back(parameter("bias"));
    add_channels_first("Conv", inputs,
                       window(conv.kernel, conv.stride, conv.padding)
                           .list("dilations", {conv.dilation.height, conv.dilation.width})
                           .number("group", conv.groups));
  }
  static Attributes window(Size2 kernel, Size2 stride, Size2 padding) {
    Attributes attributes;
    attributes.list("kernel_shape", {kernel.height, kernel.width}).list("strides", {stride.height, stride.width});
    attributes.list("pads", {padding.height, padding.width, padding.height, padding.width});
    return attributes;
  }
  void add(const MaxPool& pool) {
    add_channels_first("MaxPool", {channels_first(input_tensor())},
                       window(pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding));
  }
  void add(const AveragePool& pool) {
    add_channels_first(
        "AveragePool", {channels_first(input_tensor())},
        window(pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding).number("count_include_pad", 0));
  }
  void add(const GlobalAveragePool&) {
    add_plain("Flatten", {step("GlobalAveragePool", {channels_first(input_tensor())}, "means")});
  }
  void add(const Flatten&) { add_plain("Flatten", {plain(input_tensor())}); }
  void add(const Relu&) { add_elementwise("Relu"); }
  void add(const Tanh&) { add_elementwise("Tanh"); }
  void add(const Sigmoid&) { add_elementwise("Sigmoid"); }
  void add(const Gelu&) { add_elementwise("Gelu"); }
  void add(const Dropout& dropout) { add_elementwise("Dropout", {constant("rate", dropout.rate)}); }
  void add(const Add&) { add_elementwise("Sum"); }
  void add(const Multiply&) {
    const auto& read = graph_.inputs_of(layer_);
    std::string product = plain(read[0]);
    for (std::size_t i = 1; i + 1 < read.size(); ++i) product = step("Mul", {product, plain(read[i])}, "product");
    add_plain("Mul", {product, plain(read.back())});
  }
  void add(const Concat&) {
    Names inputs;
    for (const std::uint32_t tensor : graph_.inputs_of(layer_)) inputs.push_back(plain(tensor));
    add_plain("Concat", inputs, Attributes{}.number("axis", -1));
  }
  void add(const Transpose& transpose) {
    Numbers order{0};
    for (const std::uint32_t extent : transpose.order) order.push_back(extent + std::int64_t{1});
    add_plain("Transpose", {plain(input_tensor())}, Attributes{}.list("perm", order));
  }
  void add(const BatchNorm& norm) {
    const Names parameters{parameter("weight"), parameter("bias"), parameter("running_mean"), parameter("running_var")};
    Attributes attributes;
    attributes.f32("epsilon", norm.epsilon).f32("momentum", 1 - norm.momentum);
    const bool image = input_shape().extents.size() == 3;
    Names inputs{image ? channels_first(input_tensor()) : plain(input_tensor())};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    if (image) return add_channels_first("BatchNormalization", inputs, attributes);
    add_plain("BatchNormalization", inputs, attributes);
  }
  void add(const LayerNorm& norm) {
    add_plain("LayerNormalization", {plain(input_tensor()), parameter("weight"), parameter("bias")},
              Attributes{}.number("axis", -1).f32("epsilon", norm.epsilon));
  }
  void add(const L2Norm& norm) {
    const std::string read = plain(input_tensor());
    const std::string squares = step("Mul", {read, read}, "squares");
    const std::string sum = step("ReduceSum", {squares, constant("last", Numbers{-1})}, "sum");
    const std::string more = step("Add", {sum, constant("epsilon", norm.epsilon)}, "more");
    add_plain("Mul", {step("Div", {read, step("Sqrt", {more}, "norm")}, "divided"), parameter("scale")});
  }
  /// A token below 0 gives zeros; Gather alone would take a row from the end.
  void add(const Embedding&) {
    const std::string tokens = plain(input_tensor()), zero = constant("zero", Numbers{0});
    const std::string rows = step("Gather", {parameter("weight"), step("Max", {tokens, zero}, "row")}, "rows");
    const std::string known = step("GreaterOrEqual", {tokens, zero}, "is_known");
    const std::string factor = step("Cast", {known}, "known", Attributes{}.number("to", kFloat));
    add_plain("Mul", {rows, step("Unsqueeze", {factor, constant("last", Numbers{-1})}, "factor")});
  }
  void add(const Position&) { add_plain("Add", {plain(input_tensor()), parameter("weight")}); }
  void add(const Attention& attention) {
    const std::int64_t length = input_shape().extents[0], width = input_shape().extents[1] / 3;
    const std::int64_t each = width / attention.heads;
    const Names parts{part_name("query"), part_name("key"), part_name("value")};
    nodes("Split", {plain(input_tensor())}, parts, Attributes{}.number("axis", 2).number("num_outputs", 3));
    const std::string shape = constant("shape", Numbers{0, 0, attention.heads, each});
    const auto heads = [&](std::size_t part, const Numbers& order) {
      const std::string apart = step("Reshape", {parts[part], shape}, "apart");
      return step("Transpose", {apart}, "heads", Attributes{}.list("perm", order));
    };
    const std::string query = heads(0, {0, 2, 1, 3}), key = heads(1, {0, 2, 3, 1}), value = heads(2, {0, 2, 1, 3});
    const std::string factor = constant("factor", 1 / std::sqrt(static_cast<double>(each)));
    std::string scores = step("Mul", {step("MatMul", {query, key}, "products"), factor}, "scores");
    if (attention.causal) {
      const std::vector<float> never{-std::numeric_limits<float>::infinity()};
      Attributes filled;
      filled.tensor("value", tensor_of("", kFloat, {1}).bytes(9, bytes_of(never)));
      const std::string square = step("ConstantOfShape", {constant("square", Numbers{length, length})}, "all", filled);
      const std::string later = step("Trilu", {square, constant("above", {}, kInt64, bytes_of(Numbers{1}))}, "later");
      scores = step("Add", {scores, later}, "seen");
    }
    const std::string shares = step("Softmax", {scores}, "shares", Attributes{}.number("axis", -1));
    const std::string read = step("MatMul", {shares, value}, "read");
    const std::string back = step("Transpose", {read}, "back", Attributes{}.list("perm", {0, 2, 1, 3}));
    add_plain("Reshape", {back, constant("joined", Numbers{0, 0, width})});
  }
  void add(const SoftmaxCrossEntropy&) { add_output(); }
  void add(const SmoothL1&) { add_output(); }
  void add(const SigmoidCrossEntropy&) { add_output(); }
  void add_output() {
    constexpr std::uint32_t kOutput = 12;
    if (!outputs_.insert(input_tensor()).second) return;
    add_value(kOutput, plain(input_tensor()), kFloat, input_shape());
  }

  const Graph& graph_;
  std::vector<Tensor> tensors_;
  Names parameters_;              // by parameter of the graph
  std::vector<bool> by_columns_;  // by parameter: whether it is written transposed
  std::set<std::string> taken_;   // names
  std::set<std::uint32_t> outputs_;
  ProtobufMessage body_;
  std::size_t layer_ = 0;  // the layer that is being added
};

}  // namespace

void write_onnx(const Graph& graph, const ParameterNumbers& numbers, const OnnxBytes& write) {
  TROUPE_CHECK(!graph.layers().empty(), Code::unsupported, "graph ", graph.name(),
               ": its layers are not known, since an app computes it itself");
  OnnxGraph{graph}.write(numbers, write);
}

}  // namespace troupe
