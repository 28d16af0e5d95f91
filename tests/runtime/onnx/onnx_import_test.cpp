#include "runtime/onnx/onnx_import.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/layer_list.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/onnx/detail/protobuf.hpp"
#include "runtime/onnx/onnx_export.hpp"
#include "tests/contracts/golden_files.hpp"
#include "tests/contracts/layer_graphs.hpp"

namespace troupe {
namespace {

using detail::ProtobufMessage;
using ::testing::HasSubstr;

std::string bytes_of(const Graph& graph, const std::vector<std::vector<float>>& numbers) {
  std::string bytes;
  write_onnx(
      graph, [&](std::size_t p, std::span<float> to) { std::ranges::copy(numbers[p], to.begin()); },
      [&](std::span<const std::byte> part) { bytes.append(reinterpret_cast<const char*>(part.data()), part.size()); });
  return bytes;
}

std::vector<std::vector<float>> numbers_of(const Graph& graph) {
  std::vector<std::vector<float>> numbers;
  for (const Parameter& parameter : graph.parameters()) {
    std::vector<float>& made = numbers.emplace_back(parameter.count_elements());
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = static_cast<float>(random_normal(sub_key(3, numbers.size()), i));
  }
  return numbers;
}

OnnxModel read(const std::string& bytes, const std::vector<Field>& fields) {
  return read_onnx(std::as_bytes(std::span{bytes}), fields, {}, "m.onnx");
}

std::string refusal(const std::string& bytes, const std::vector<Field>& fields) {
  try {
    read(bytes, fields);
  } catch (const Error& error) {
    return text(name_of(error.code()), ": ", error.what());
  }
  return "accepted";
}

/// What a file does not tell of an operation: how its numbers would have started.
Operation without_start(Operation operation) {
  if (auto* embedding = std::get_if<Embedding>(&operation)) embedding->deviation = 1;
  if (auto* position = std::get_if<Position>(&operation)) position->deviation = 0.02;
  if (auto* dropout = std::get_if<Dropout>(&operation)) dropout->rate = static_cast<float>(dropout->rate);
  if (auto* norm = std::get_if<L2Norm>(&operation)) norm->scale = 20;
  if (auto* norm = std::get_if<BatchNorm>(&operation)) norm->synchronized = false;
  if (auto* pool = std::get_if<MaxPool>(&operation)) pool->stride = pool_stride(pool->stride, pool->kernel);
  if (auto* pool = std::get_if<AveragePool>(&operation)) pool->stride = pool_stride(pool->stride, pool->kernel);
  return operation;
}

bool is_loss(const Layer& layer) { return kind_of(layer.operation).is_loss; }

/// The file's graph with the losses of another one.
Graph with_losses(const OnnxModel& model, const Graph& graph) {
  std::vector<Layer> layers = model.layers;
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    if (!is_loss(graph.layers()[l])) continue;
    Layer loss = graph.layers()[l];
    const auto name_of_tensor = [&](std::uint32_t tensor) {
      return tensor < graph.fields().size() ? graph.fields()[tensor].name
                                            : graph.layers()[tensor - graph.fields().size()].name;
    };
    loss.inputs.clear();
    for (const std::uint32_t tensor : graph.inputs_of(l)) loss.inputs.push_back(name_of_tensor(tensor));
    layers.push_back(std::move(loss));
  }
  return {model.name, graph.fields(), graph.dtype(), std::move(layers)};
}

/// Whether a file can have the graph at all: one output, and no layer after a loss.
bool is_plain(const Graph& graph) {
  bool over = false;
  std::vector<std::uint32_t> outputs;
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    if (is_loss(graph.layers()[l])) outputs.push_back(graph.inputs_of(l).front());
    if (over && !is_loss(graph.layers()[l])) return false;
    over = over || is_loss(graph.layers()[l]);
  }
  return std::ranges::all_of(outputs, [&](std::uint32_t one) { return one == outputs[0]; }) &&
         outputs[0] >= graph.fields().size();
}

void expect_same(const Graph& found, const Graph& graph) {
  SCOPED_TRACE(graph.to_string());
  ASSERT_EQ(found.layers().size(), graph.layers().size()) << found.to_string();
  for (std::size_t l = 0; l < graph.layers().size(); ++l) {
    EXPECT_EQ(found.layers()[l].name, graph.layers()[l].name);
    EXPECT_EQ(without_start(found.layers()[l].operation), without_start(graph.layers()[l].operation))
        << found.to_string();
    EXPECT_EQ(found.inputs_of(l), graph.inputs_of(l)) << found.to_string();
  }
}

/// A transposition of an image's channels is no layer in a file: it is how an image lies there.
bool is_kept(const Graph& graph) {
  return std::ranges::none_of(graph.layers(), [](const Layer& layer) {
    const auto* transpose = std::get_if<Transpose>(&layer.operation);
    return transpose != nullptr && transpose->order.size() == 3;
  });
}

TEST(OnnxImport, GivesTheGraphAndTheNumbersThatWereExported) {
  std::size_t read_back = 0;
  std::vector<Graph> graphs;
  for (const contracts::GoldenCase& golden : contracts::read_golden_cases(TROUPE_GOLDEN_FOLDER))
    graphs.push_back(golden.graph(DType::f32));
  for (std::uint64_t key = 0; key < 12; ++key) {
    for (const LayerKind* kind : contracts::kinds_of_layers())
      graphs.push_back(contracts::graph_with(*kind, key, DType::f32));
    graphs.push_back(contracts::random_network(key, DType::f32));
  }
  for (const Graph& graph : graphs) {
    if (!is_plain(graph) || !is_kept(graph)) continue;
    SCOPED_TRACE(graph.to_string());
    const auto numbers = numbers_of(graph);
    const OnnxModel model = read(bytes_of(graph, numbers), graph.fields());
    expect_same(with_losses(model, graph), graph);
    ASSERT_EQ(model.parameters.size(), numbers.size());
    for (std::size_t p = 0; p < numbers.size(); ++p)
      EXPECT_EQ(model.parameters.at(graph.parameters()[p].name), numbers[p]) << graph.parameters()[p].name;
    ++read_back;
  }
  EXPECT_GT(read_back, 100U);
}

// ---- Files of other programs, written by hand ----

ProtobufMessage list(std::string_view name, const std::vector<std::int64_t>& values) {
  ProtobufMessage made;
  made.bytes(1, name);
  for (const std::int64_t value : values) made.number(8, value);
  return made.number(20, 7);
}
ProtobufMessage number(std::string_view name, std::int64_t value) {
  return ProtobufMessage{}.bytes(1, name).number(3, value).number(20, 2);
}

/// A file of one graph.
class File {
 public:
  File& node(std::string_view operation, const std::vector<std::string>& inputs, std::string_view output,
             const std::vector<ProtobufMessage>& attributes = {}, std::string_view domain = {}) {
    ProtobufMessage made;
    for (const std::string& input : inputs) made.bytes(1, input);
    made.bytes(2, output).bytes(3, text("node_", output)).bytes(4, operation);
    for (const ProtobufMessage& attribute : attributes) made.message(5, attribute);
    if (!domain.empty()) made.bytes(7, domain);
    graph_.message(1, made);
    return *this;
  }
  /// In float_data, which other programs may write.
  File& f32(std::string_view name, const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
    ProtobufMessage made;
    for (const std::int64_t dim : dims) made.number(1, dim);
    made.number(2, 1).bytes(8, name);
    for (const float value : values) made.f32(4, value);
    graph_.message(5, made);
    return *this;
  }
  File& whole(std::string_view name, const std::vector<std::int64_t>& values) {
    ProtobufMessage made;
    made.number(1, static_cast<std::int64_t>(values.size())).number(2, 7).bytes(8, name);
    for (const std::int64_t value : values) made.number(7, value);
    graph_.message(5, made);
    return *this;
  }
  File& input(std::string_view name, const std::vector<std::int64_t>& dims) { return value(11, name, dims); }
  File& output(std::string_view name) { return value(12, name, {}); }
  std::string bytes(std::int64_t opset = 17) const {
    return ProtobufMessage{}
        .number(1, 8)
        .message(8, ProtobufMessage{}.bytes(1, "").number(2, opset))
        .message(7, graph_)
        .str();
  }

 private:
  File& value(std::uint32_t field, std::string_view name, const std::vector<std::int64_t>& dims) {
    ProtobufMessage shape;
    for (const std::int64_t dim : dims)
      shape.message(1, dim == 0 ? ProtobufMessage{}.bytes(2, "N") : ProtobufMessage{}.number(1, dim));
    const ProtobufMessage type = ProtobufMessage{}.message(1, ProtobufMessage{}.number(1, 1).message(2, shape));
    graph_.message(field, ProtobufMessage{}.bytes(1, name).message(2, type));
    return *this;
  }
  ProtobufMessage graph_;
};

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

std::vector<Field> image_and_label(Shape image) {
  return {{"image", std::move(image), DType::f32}, {"label", {}, DType::i32, 2}};
}

std::string graph_text(const OnnxModel& model, const std::vector<Field>& fields) {
  std::vector<Layer> layers = model.layers;
  layers.push_back({"loss", SoftmaxCrossEntropy{}, {model.output, "label"}});
  return Graph{model.name, fields, DType::f32, std::move(layers)}.to_string();
}

TEST(OnnxImport, ReadsAConvolutionNetworkAsPyTorchWritesIt) {
  // [N, 2, 3, 4]: 2 channels, a convolution of 1x1 to 3, flattened in the order channels, height, width.
  const File file = File{}
                        .input("x", {0, 2, 3, 4})
                        .f32("features.0.weight", {3, 2, 1, 1}, counted(6))
                        .f32("features.0.bias", {3}, {7, 8, 9})
                        .f32("fc.weight", {2, 36}, counted(72))
                        .f32("fc.bias", {2}, {1, 2})
                        .node("Conv", {"x", "features.0.weight", "features.0.bias"}, "/features/0/Conv_output_0",
                              {list("kernel_shape", {1, 1}), list("pads", {0, 0, 0, 0}), list("strides", {1, 1})})
                        .node("Relu", {"/features/0/Conv_output_0"}, "/Relu_output_0")
                        .node("Flatten", {"/Relu_output_0"}, "/Flatten_output_0", {number("axis", 1)})
                        .node("Gemm", {"/Flatten_output_0", "fc.weight", "fc.bias"}, "logits", {number("transB", 1)})
                        .node("Softmax", {"logits"}, "y", {number("axis", 1)})
                        .output("y");
  const std::vector<Field> fields = image_and_label(Shape{{3, 4, 2}});
  const OnnxModel model = read(file.bytes(), fields);
  EXPECT_THAT(graph_text(model, fields),
              HasSubstr("\"features.0\"=conv2d(3) \"Relu\"=relu \"fc\"=dense(2) \"loss\"=softmax_cross_entropy"));
  EXPECT_EQ(model.parameters.at("features.0.weight"), counted(6));
  const std::vector<float>& weight = model.parameters.at("fc.weight");
  ASSERT_EQ(weight.size(), 72U);
  for (std::size_t unit = 0; unit < 2; ++unit)
    for (std::size_t place = 0; place < 12; ++place)
      for (std::size_t channel = 0; channel < 3; ++channel)
        ASSERT_EQ(weight[unit * 36 + place * 3 + channel], static_cast<float>(unit * 36 + channel * 12 + place));
}

TEST(OnnxImport, ReadsMatricesBothWaysAndGeluInFiveNodes) {
  const File file = File{}
                        .input("x", {0, 4})
                        .f32("w", {4, 2}, counted(8))
                        .f32("a.weight", {2, 2}, counted(4))
                        .f32("b", {2}, {5, 6})
                        .f32("root", {}, {1.41421356F})
                        .f32("one", {}, {1})
                        .f32("half", {}, {0.5F})
                        .node("Gemm", {"x", "w"}, "h")
                        .node("Div", {"h", "root"}, "g1")
                        .node("Erf", {"g1"}, "g2")
                        .node("Add", {"g2", "one"}, "g3")
                        .node("Mul", {"h", "g3"}, "g4")
                        .node("Mul", {"g4", "half"}, "g")
                        .node("MatMul", {"g", "a.weight"}, "p")
                        .node("Add", {"b", "p"}, "y")
                        .output("y");
  const std::vector<Field> fields = image_and_label(Shape{{4}});
  const OnnxModel model = read(file.bytes(), fields);
  EXPECT_THAT(graph_text(model, fields),
              HasSubstr("\"h\"=dense(2, bias=false) \"g\"=gelu \"a\"=dense(2, flatten=false)"));
  EXPECT_EQ(model.parameters.at("h.weight"), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(model.parameters.at("a.weight"), (std::vector<float>{0, 2, 1, 3}));
  EXPECT_EQ(model.parameters.at("a.bias"), (std::vector<float>{5, 6}));
}

/// The model with a loss on its output.
Graph with_loss(const OnnxModel& model, const std::vector<Field>& fields) {
  std::vector<Layer> layers = model.layers;
  layers.push_back({"loss", SoftmaxCrossEntropy{}, {model.output, "label"}});
  return {model.name, fields, DType::f32, std::move(layers)};
}

/// For onnx_models_test.py, which compares what both files compute: beside NAME.json, which says what the data has, and
/// NAME.onnx comes NAME.again.onnx, or NAME.refused with the message.
TEST(OnnxImport, WritesAgainWhatOtherProgramsWrote) {
  const char* const given = std::getenv("TROUPE_ONNX_FOLDER");
  if (given == nullptr) GTEST_SKIP() << "onnx_models_test.py runs this";
  const std::filesystem::path folder{given};
  std::size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file{entry.path()};
    const auto facts = nlohmann::json::parse(file);
    const bool tokens = facts.at("tokens").get<std::uint32_t>() > 0;
    const Shape shape{facts.at("extents").get<std::vector<std::uint32_t>>()};
    const Shape labels = tokens ? shape : Shape{};
    const std::vector<Field> fields{
        {"x", shape, tokens ? DType::i32 : DType::f32, facts.at("tokens").get<std::uint32_t>()},
        {"label", labels, DType::i32, facts.at("classes").get<std::uint32_t>()}};
    const std::string stem = (folder / entry.path().stem()).string();
    ++models;
    try {
      const OnnxModel model = read_onnx_file(stem + ".onnx", fields, facts.at("output").get<std::string>());
      const Graph graph = with_loss(model, fields);
      std::vector<std::vector<float>> numbers;
      for (const Parameter& parameter : graph.parameters()) numbers.push_back(model.parameters.at(parameter.name));
      const std::string bytes = bytes_of(graph, numbers);
      std::ofstream again{stem + ".again.onnx", std::ios::binary};
      ASSERT_TRUE(again.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush());
      std::ofstream text{stem + ".graph"};
      text << graph.to_string();
      const OnnxModel twice = read(bytes, fields);
      EXPECT_EQ(bytes_of(with_loss(twice, fields), numbers), bytes) << stem;
    } catch (const Error& error) {
      std::ofstream refused{stem + ".refused"};
      refused << error.what();
    }
  }
  EXPECT_GT(models, 0U);
}

TEST(OnnxImport, NamesTheNodeAndTheOperationOfWhatNoLayerDoes) {
  const std::vector<Field> fields = image_and_label(Shape{{3, 4, 2}});
  const auto with = [](File file) { return file.input("x", {0, 2, 3, 4}).output("y"); };
  EXPECT_THAT(refusal(with(File{}.node("Pad", {"x"}, "y")).bytes(), fields),
              HasSubstr("unsupported: m.onnx: node node_y (Pad): no layer does this; there are Add, "));
  EXPECT_THAT(refusal(with(File{}.node("Relu", {"x"}, "y", {}, "com.acme")).bytes(), fields),
              HasSubstr("node node_y (Relu) is of the domain com.acme"));
  EXPECT_THAT(
      refusal(
          with(File{}.f32("w", {3, 2, 2, 2}, counted(24)).node("Conv", {"x", "w"}, "y", {list("pads", {0, 0, 1, 1})}))
              .bytes(),
          fields),
      HasSubstr("node node_y (Conv): pads the two sides of an image differently"));
  EXPECT_THAT(refusal(with(File{}.f32("w", {3, 5, 1, 1}, counted(15)).node("Conv", {"x", "w"}, "y")).bytes(), fields),
              HasSubstr("has weights of another number of channels than its input"));
  EXPECT_THAT(refusal(with(File{}.node("MaxPool", {"x"}, "y", {list("kernel_shape", {9, 9})})).bytes(), fields),
              HasSubstr("node node_y (MaxPool), as layer y"));
  EXPECT_THAT(refusal(with(File{}.node("Relu", {"z"}, "y")).bytes(), fields),
              HasSubstr("reads what no node before it puts out, \"z\""));
  EXPECT_THAT(refusal(with(File{}.f32("w", {2, 2}, counted(3)).node("Relu", {"x"}, "y")).bytes(), fields),
              HasSubstr("invalid: m.onnx: tensor \"w\" has 3 numbers, which its dimensions do not"));
  EXPECT_THAT(refusal(File{}.input("x", {0, 5}).node("Relu", {"x"}, "y").output("y").bytes(), fields),
              HasSubstr("input \"x\" is [?, 5], field image [3, 4, 2] f32"));
  EXPECT_THAT(refusal(with(File{}.node("Relu", {"x"}, "y")).bytes(5), fields), HasSubstr("opset 5"));
  EXPECT_THAT(refusal("no file of ONNX", fields), HasSubstr("invalid: m.onnx: "));
  EXPECT_THAT(refusal("", fields), HasSubstr("it is no model of ONNX"));
}

}  // namespace
}  // namespace troupe
