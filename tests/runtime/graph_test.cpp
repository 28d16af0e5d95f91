#include "runtime/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/error.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

Graph mlp(DType dtype = DType::f32) {
  return Graph{"mlp",
               Shape{{28, 28, 1}},
               dtype,
               {{"l1", Dense{1000}},
                {"r1", Relu{}},
                {"l2", Dense{1000}},
                {"r2", Relu{}},
                {"l3", Dense{10}},
                {"loss", SoftmaxCrossEntropy{}}}};
}

std::string refusal(Shape input, std::vector<Layer> layers) {
  try {
    Graph{"g", std::move(input), DType::f32, std::move(layers)};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "accepted";
}

TEST(Graph, InfersShapesAndFlattensImagesBeforeADenseLayer) {
  const Graph graph = mlp();
  EXPECT_EQ(graph.output_of(0), (Shape{{1000}}));
  EXPECT_EQ(graph.output_of(1), (Shape{{1000}}));
  EXPECT_EQ(graph.output_of(5), (Shape{{10}}));
  EXPECT_EQ(graph.count_classes(), 10U);
}

TEST(Graph, ListsParametersInTheOrderOfTheLayersWeightBeforeBias) {
  const Graph graph = mlp();
  ASSERT_EQ(graph.parameters().size(), 6U);
  EXPECT_EQ(graph.parameters()[0].name, "l1.weight");
  EXPECT_EQ(graph.parameters()[0].extents, (std::vector<std::uint64_t>{1000, 784}));
  EXPECT_EQ(graph.parameters()[1].name, "l1.bias");
  EXPECT_EQ(graph.parameters()[5].extents, (std::vector<std::uint64_t>{10}));
  EXPECT_EQ(graph.parameters()[5].layer, 4U);
  EXPECT_EQ(graph.count_parameters(), 784U * 1000 + 1000 + 1000 * 1000 + 1000 + 10 * 1000 + 10);
}

TEST(Graph, StartsWeightsWithTheVarianceOfOneOverTheInputsAndBiasesAtZero) {
  const Graph graph = mlp();
  EXPECT_DOUBLE_EQ(graph.parameters()[0].deviation, 1.0 / 28);
  EXPECT_EQ(graph.parameters()[1].deviation, 0);
}

TEST(Graph, CountsNoGradientToTheInput) {
  const std::uint64_t l1 = 2 * 784 * 1000, l2 = 2 * 1000 * 1000, l3 = 2 * 1000 * 10;
  EXPECT_EQ(mlp().forward_flops(), l1 + l2 + l3);
  EXPECT_EQ(mlp().training_flops(), 2 * l1 + 3 * l2 + 3 * l3);
}

TEST(Graph, HasATextThatTellsDifferentGraphsApart) {
  EXPECT_EQ(mlp().to_string(), mlp().to_string());
  EXPECT_NE(mlp().to_string(), mlp(DType::bf16).to_string());
  const Graph one{"g", Shape{{4}}, DType::f32, {{"a", Dense{2}}, {"b", SoftmaxCrossEntropy{}}}};
  const Graph two{"g", Shape{{4}}, DType::f32, {{"a", Dense{3}}, {"b", SoftmaxCrossEntropy{}}}};
  const Graph three{"g", Shape{{2, 2}}, DType::f32, {{"a", Dense{2}}, {"b", SoftmaxCrossEntropy{}}}};
  EXPECT_NE(one.to_string(), two.to_string());
  EXPECT_NE(one.to_string(), three.to_string());
}

TEST(Graph, RefusesTwoLayersOfOneName) {
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", Dense{2}}, {"a", SoftmaxCrossEntropy{}}}),
              HasSubstr("two layers are called a"));
}

TEST(Graph, RefusesAModelWhoseLastLayerIsNoLoss) {
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", Dense{2}}, {"b", Relu{}}}), HasSubstr("layer b"));
}

TEST(Graph, RefusesALossBeforeTheEnd) {
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", SoftmaxCrossEntropy{}}, {"b", Dense{2}}, {"c", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer a"));
}

TEST(Graph, RefusesAModelWithNothingToTrain) {
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", SoftmaxCrossEntropy{}}}), HasSubstr("nothing to train"));
  EXPECT_THAT(refusal(Shape{{4}}, {}), HasSubstr("no layers"));
}

TEST(Graph, RefusesShapesWithoutElementsOrTooMany) {
  EXPECT_THAT(refusal(Shape{{}}, {{"a", Dense{2}}, {"b", SoftmaxCrossEntropy{}}}), HasSubstr("no extents"));
  EXPECT_THAT(refusal(Shape{{4, 0}}, {{"a", Dense{2}}, {"b", SoftmaxCrossEntropy{}}}), HasSubstr("positive"));
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", Dense{0}}, {"b", SoftmaxCrossEntropy{}}}), HasSubstr("layer a"));
  constexpr std::uint32_t huge = 0xffffffffU;
  EXPECT_THAT(refusal(Shape{{huge, huge, huge}}, {{"a", Dense{1}}, {"b", SoftmaxCrossEntropy{}}}),
              HasSubstr("at most"));
  EXPECT_THAT(refusal(Shape{{1U << 20}}, {{"a", Dense{huge}}, {"b", SoftmaxCrossEntropy{}}}), HasSubstr("layer a"));
}

}  // namespace
}  // namespace troupe
