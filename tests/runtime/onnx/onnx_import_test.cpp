#include "runtime/onnx/onnx_import.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/layer_list.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/onnx/onnx_export.hpp"
#include "tests/contracts/golden_files.hpp"
#include "tests/contracts/layer_graphs.hpp"
#include "tests/runtime/onnx/hand_made_file.hpp"

namespace troupe {
namespace {

using testing::FileFacts;
using testing::read_model;

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
    const OnnxModel model = read_model(bytes_of(graph, numbers), graph.fields());
    expect_same(with_losses(model, graph), graph);
    ASSERT_EQ(model.parameters.size(), numbers.size());
    for (std::size_t p = 0; p < numbers.size(); ++p)
      EXPECT_EQ(model.parameters.at(graph.parameters()[p].name), numbers[p]) << graph.parameters()[p].name;
    ++read_back;
  }
  EXPECT_GT(read_back, 100U);
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
    const FileFacts facts{entry.path()};
    const std::vector<Field>& fields = facts.fields;
    const std::string stem = (folder / entry.path().stem()).string();
    ++models;
    try {
      const OnnxModel model = read_onnx_file(facts.file, fields, facts.output);
      const Graph graph = with_loss(model, fields);
      std::vector<std::vector<float>> numbers;
      for (const Parameter& parameter : graph.parameters()) numbers.push_back(model.parameters.at(parameter.name));
      const std::string bytes = bytes_of(graph, numbers);
      std::ofstream again{stem + ".again.onnx", std::ios::binary};
      ASSERT_TRUE(again.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush());
      std::ofstream text{stem + ".graph"};
      text << graph.to_string();
      const OnnxModel twice = read_model(bytes, fields);
      EXPECT_EQ(bytes_of(with_loss(twice, fields), numbers), bytes) << stem;
    } catch (const Error& error) {
      std::ofstream refused{stem + ".refused"};
      refused << error.what();
    }
  }
  EXPECT_GT(models, 0U);
}

}  // namespace
}  // namespace troupe
