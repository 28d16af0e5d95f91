#include "runtime/onnx/onnx_export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/graph_text.hpp"
#include "tests/contracts/golden_files.hpp"
#include "tests/contracts/layer_graphs.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kKeys = 12;

/// Graphs with every kind of layer and drawn attributes, and networks.
std::vector<Graph> drawn_graphs() {
  std::vector<Graph> graphs;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      for (const LayerKind* kind : contracts::kinds_of_layers())
        graphs.push_back(contracts::graph_with(*kind, key, dtype));
      for (const LayerKind* kind : contracts::kinds_of_losses())
        graphs.push_back(contracts::graph_with_loss(*kind, key, dtype));
      graphs.push_back(contracts::random_network(key, dtype));
    }
  }
  return graphs;
}

std::string refusal(std::string_view graph) {
  try {
    parse_graph(graph);
  } catch (const Error& error) {
    return text(name_of(error.code()), ": ", error.what());
  }
  return "accepted";
}

std::string onnx_of(const Graph& graph, const ParameterNumbers& numbers) {
  std::string bytes;
  write_onnx(graph, numbers, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

TEST(GraphText, IsReadBackAsTheSameGraph) {
  for (const Graph& graph : drawn_graphs()) {
    const Graph found = parse_graph(graph.to_string());
    EXPECT_EQ(found.layers(), graph.layers()) << graph.to_string();
    EXPECT_EQ(found.to_string(), graph.to_string());
  }
  const Graph odd{"a \"b\" \\", Shape{{4}}, DType::f32, {{"x y=[", Dense{3}}, {"l\"", SoftmaxCrossEntropy{0.1}}}};
  EXPECT_EQ(parse_graph(odd.to_string()).to_string(), odd.to_string());
}

TEST(GraphText, IsRefusedWhereNoGraphHasIt) {
  const std::string good = R"(graph "g" input [4] f32 "a"=dense(3) "loss"=softmax_cross_entropy)";
  EXPECT_EQ(refusal(good), "accepted");
  for (std::size_t end = 0; end < good.size(); ++end)
    EXPECT_THAT(refusal(good.substr(0, end)), HasSubstr("corrupt: ")) << good.substr(0, end);
  EXPECT_THAT(refusal(R"(graph "g" input [4] f32 "a"=convolve(3) "loss"=softmax_cross_entropy)"),
              HasSubstr("a layer \"convolve\", which this build does not know"));
  EXPECT_THAT(refusal(R"(graph "g" input [4] f32 "a"=dense(units=3) "loss"=softmax_cross_entropy)"),
              HasSubstr("not as it was written"));
  const Graph own{"own", {{"image", {{4}}, DType::f32}}, std::vector<Parameter>{{"w", {4}}}};
  EXPECT_THAT(refusal(own.to_string()), HasSubstr("unsupported: the layers of the model are not known"));
}

TEST(OnnxExport, HasTheNumbersOfEachParameter) {
  const Graph graph{
      "g", Shape{{5, 4, 2}}, DType::f32, {{"c", Conv2d{.filters = 3}}, {"d", Dense{3}}, {"l", SoftmaxCrossEntropy{}}}};
  std::vector<std::vector<float>> given(graph.parameters().size());
  const std::string bytes = onnx_of(graph, [&](std::size_t p, std::span<float> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(100 * (p + 1) + i);
    given[p].assign(to.begin(), to.end());
  });
  for (std::size_t p = 0; p < given.size(); ++p) {
    ASSERT_EQ(given[p].size(), graph.parameters()[p].count_elements());
    const std::string_view raw{reinterpret_cast<const char*>(given[p].data()), given[p].size() * sizeof(float)};
    EXPECT_NE(bytes.find(raw), std::string::npos) << graph.parameters()[p].name;
    EXPECT_NE(bytes.find(graph.parameters()[p].name), std::string::npos);
  }
}

TEST(OnnxExport, RefusesAFileOf2GiBBeforeItAsksForNumbers) {
  const Graph graph{"g", Shape{{16384}}, DType::f32, {{"d", Dense{32768}}, {"l", SoftmaxCrossEntropy{}}}};
  try {
    onnx_of(graph, [](std::size_t, std::span<float>) { FAIL() << "numbers were asked for"; });
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("graph g: its ONNX file would have 2147"));
  }
}

/// The models of the golden files as they start: into a folder for onnx_outputs_test.py, which computes them.
TEST(OnnxExport, WritesTheGoldenCases) {
  const char* const folder = std::getenv("TROUPE_ONNX_FOLDER");
  for (const contracts::GoldenCase& golden : contracts::read_golden_cases(TROUPE_GOLDEN_FOLDER)) {
    const Graph graph = golden.graph(DType::f32);
    const std::string bytes = onnx_of(graph, [&](std::size_t p, std::span<float> to) {
      std::ranges::transform(golden.parameters.at(graph.parameters()[p].name).start, to.begin(),
                             [](double number) { return static_cast<float>(number); });
    });
    EXPECT_GT(bytes.size(), graph.count_parameters() * sizeof(float)) << golden.name;
    if (folder == nullptr) continue;
    std::ofstream file{std::filesystem::path{folder} / (golden.name + ".onnx"), std::ios::binary};
    file << bytes;
    EXPECT_TRUE(file.flush()) << golden.name;
  }
}

}  // namespace
}  // namespace troupe
