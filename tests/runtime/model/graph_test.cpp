#include "runtime/model/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"

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
              HasSubstr("two layers or fields are called a"));
}

TEST(Graph, RefusesNamesThatACheckpointCannotHold) {
  for (const std::string name : {"w\xff", "w\x1b[2J"}) {
    EXPECT_THAT(refusal(Shape{{4}}, {{name, Dense{2}}, {"b", SoftmaxCrossEntropy{}}}),
                HasSubstr("layer 0 is called " + printable(name) + "; a name must be text in UTF-8"));
    EXPECT_THROW(Graph("own", {}, {{.name = name, .extents = {2}}}), Error);
  }
}

TEST(Graph, RefusesAModelWhoseLastLayerIsNoLoss) {
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", Dense{2}}, {"b", Relu{}}}), HasSubstr("layer b"));
}

TEST(Graph, RefusesALossBeforeTheEnd) {
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", SoftmaxCrossEntropy{}}, {"b", Dense{2}}, {"c", SoftmaxCrossEntropy{}}}),
              HasSubstr("a loss, which is the last layer of its branch"));
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

std::vector<Field> two_labels() {
  return {{"image", {{2, 3}}, DType::f32}, {"kind", {}, DType::i32, 5}, {"label", {}, DType::i32, 4}};
}

/// Layers that go round another one, and two losses.
Graph branches() {
  return {"branches",
          two_labels(),
          DType::f32,
          {{"a", Dense{8}},
           {"r", Relu{}},
           {"b", Dense{8}},
           {"sum", Add{}, {"r", "b"}},
           {"k", Dense{5}},
           {"kind loss", SoftmaxCrossEntropy{0.25}, {"k", "kind"}},
           {"c", Dense{4}, {"sum"}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

TEST(Graph, TakesLayersThatReadSeveralTensorsAndTensorsThatSeveralRead) {
  const Graph graph = branches();
  EXPECT_EQ(graph.fields().size(), 3U);
  EXPECT_EQ(graph.inputs_of(0), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(graph.inputs_of(3), (std::vector<std::uint32_t>{graph.output_tensor(1), graph.output_tensor(2)}));
  EXPECT_EQ(graph.inputs_of(5), (std::vector<std::uint32_t>{graph.output_tensor(4), 1}));
  EXPECT_EQ(graph.inputs_of(7), (std::vector<std::uint32_t>{graph.output_tensor(6), 2}));
  EXPECT_EQ(graph.output_of(3), (Shape{{8}}));
  EXPECT_EQ(graph.count_readers(graph.output_tensor(1)), 2U);
  EXPECT_EQ(graph.count_readers(graph.output_tensor(3)), 2U);
  EXPECT_EQ(graph.count_classes(), 4U) << "those of the last loss";
  EXPECT_FALSE(graph.is_trained(0));
  EXPECT_TRUE(graph.is_trained(graph.output_tensor(3)));
  EXPECT_EQ(graph.training_flops(), 3 * graph.forward_flops() - 2 * 6 * 8);
}

TEST(Graph, KeepsTheTextOfAChainAndTellsFieldsInputsAndWeightsOfOthers) {
  const Graph chain{"g", Shape{{2, 3}}, DType::f32, {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}};
  EXPECT_EQ(chain.to_string(), "graph \"g\" input [2, 3] f32 \"a\"=dense(4) \"loss\"=softmax_cross_entropy");
  EXPECT_EQ(branches().to_string(),
            "graph \"branches\" field \"image\" [2, 3] f32 field \"kind\" [] i32 field \"label\" [] i32 f32 "
            "\"a\"=dense(8) \"r\"=relu \"b\"=dense(8) \"sum\"=add[\"r\", \"b\"] \"k\"=dense(5) "
            "\"kind loss\"=softmax_cross_entropy(0.25)[\"k\", \"kind\"] \"c\"=dense(4)[\"sum\"] "
            "\"loss\"=softmax_cross_entropy");
}

std::string refusal_of(std::vector<Field> fields, std::vector<Layer> layers) {
  try {
    Graph{"g", std::move(fields), DType::f32, std::move(layers)};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "accepted";
}

TEST(Graph, RefusesAnInputThatIsNeitherFieldNorEarlierLayer) {
  EXPECT_THAT(refusal_of(two_labels(), {{"a", Dense{4}, {"b"}}, {"b", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer a: it reads \"b\", which is neither a field (image, kind, label) nor an earlier layer"));
  EXPECT_THAT(refusal_of(two_labels(), {{"a", Dense{4}, {"a"}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer a: it reads \"a\""));
}

TEST(Graph, RefusesInputsOfTheWrongNumberOrShape) {
  EXPECT_THAT(refusal_of(two_labels(), {{"a", Dense{4}}, {"s", Add{}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer s (add): it reads 1 tensors, fewer than 2"));
  EXPECT_THAT(
      refusal_of(two_labels(), {{"a", Dense{4}}, {"b", Dense{5}, {"a", "image"}}, {"loss", SoftmaxCrossEntropy{}}}),
      HasSubstr("layer b (dense(5)): it reads 2 tensors, more than 1"));
  EXPECT_THAT(refusal_of(two_labels(),
                         {{"a", Dense{4}}, {"b", Dense{5}}, {"s", Add{}, {"a", "b"}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer s: tensors of [4] and [5] cannot be added"));
}

TEST(Graph, RefusesLabelsForNumbersAndNumbersForLabels) {
  EXPECT_THAT(refusal_of(two_labels(), {{"a", Dense{4}, {"label"}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer a: field label has labels; this layer reads numbers"));
  EXPECT_THAT(refusal_of(two_labels(), {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}, {"a", "image"}}}),
              HasSubstr("layer loss: image has no labels"));
  EXPECT_THAT(refusal_of({{"image", {{6}}, DType::f32}}, {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer loss: it reads \"label\""));
}

TEST(Graph, RefusesFewerLogitsThanThereAreClassesAndTakesMore) {
  const std::vector<Field> fields{{"image", {{6}}, DType::f32}, {"label", {}, DType::i32, 3}};
  EXPECT_THAT(refusal_of(fields, {{"a", Dense{2}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer loss: 2 logits for field label of 3 classes, of which each needs a logit: let the layer "
                        "before the loss output 3"));
  const Graph more{"g", fields, DType::f32, {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}};
  EXPECT_EQ(more.count_classes(), 4U);
}

TEST(Graph, CountsTheClassesOfALossWithATargetForEach) {
  const Graph graph{"g",
                    {{"image", {{6}}, DType::f32}, {"label", {{4}}, DType::f32}},
                    DType::f32,
                    {{"a", Dense{4}}, {"loss", SigmoidCrossEntropy{}}}};
  EXPECT_EQ(graph.count_classes(), 4U);
}

TEST(Graph, RefusesWhatNobodyReads) {
  EXPECT_THAT(refusal_of(two_labels(), {{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}}),
              HasSubstr("no layer reads field kind"));
  EXPECT_THAT(refusal(Shape{{4}}, {{"a", Dense{2}}, {"b", Dense{2}, {"image"}}, {"c", SoftmaxCrossEntropy{}}}),
              HasSubstr("layer a: no layer reads its output"));
}

TEST(Graph, RefusesFieldsThatAModelCannotRead) {
  const std::vector<Layer> layers{{"a", Dense{4}}, {"loss", SoftmaxCrossEntropy{}}};
  EXPECT_THAT(refusal_of({{"image", {{6}}, DType::bf16}, {"label", {}, DType::i32}}, layers),
              HasSubstr("field image: is bf16; numbers that a model in f32 reads are f32"));
  EXPECT_THAT(refusal_of({{"image", {{6}}, DType::f32}, {"label", {{2}}, DType::i32}}, layers),
              HasSubstr("layer loss: logits [4] for labels [2] of field label; they must have one extent more"));
  EXPECT_THAT(refusal_of({{"image", {{6}}, DType::f32}, {"image", {}, DType::i32}}, layers),
              HasSubstr("field \"image\": a field must have a name of its own"));
}

}  // namespace
}  // namespace troupe
