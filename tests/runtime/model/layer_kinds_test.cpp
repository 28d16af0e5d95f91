#include "runtime/model/layer_kinds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/layer_list.hpp"
#include "runtime/model/layout.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The error about these layers on an image; a dense layer reads their result.
std::string refusal_on(Shape image, Operation operation) {
  try {
    LayerList net;
    net.add(std::move(operation));
    net.add(Dense{3});
    Graph{"g", std::move(image), DType::f32, net.finish()};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "accepted";
}

Shape shape_after(Shape image, Operation operation) {
  LayerList net;
  net.add(std::move(operation));
  net.add(Dense{3});
  return Graph{"g", std::move(image), DType::f32, net.finish()}.output_of(0);
}

TEST(LayerKinds, StandInTheOrderOfTheOperationsAndHaveNamesAndHelp) {
  ASSERT_EQ(layer_kinds().size(), std::variant_size_v<Operation>);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < layer_kinds().size(); ++i) {
    const LayerKind& kind = layer_kinds()[i];
    EXPECT_EQ(kind.made.index(), i) << kind.name;
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_EQ(find_layer_kind(kind.name), &kind);
    EXPECT_EQ(kind.help.back(), '.') << kind.name;
    EXPECT_FALSE(kind.shape.empty()) << kind.name;
    for (const LayerAttribute& attribute : kind.attributes) EXPECT_FALSE(attribute.help.empty()) << attribute.name;
  }
}

TEST(LayerKinds, AreWrittenWithWhatDiffersFromTheirOwnValues) {
  EXPECT_EQ(text_of(Operation{Conv2d{.filters = 20, .kernel = {5, 3}, .groups = 2}}),
            "conv2d(20, kernel=5x3, groups=2)");
  EXPECT_EQ(text_of(Operation{MaxPool{}}), "max_pool");
  EXPECT_EQ(text_of(Operation{MaxPool{.kernel = {3, 3}, .padding = {1, 0}}}), "max_pool(3x3, padding=1x0)");
  EXPECT_EQ(text_of(Operation{Dense{.units = 4, .bias = false}}), "dense(4, bias=false)");
  EXPECT_EQ(text_of(Operation{Transpose{{2, 0, 1}}}), "transpose([2, 0, 1])");
  EXPECT_NE(text_of(Operation{MaxPool{.kernel = {3, 3}}}), text_of(Operation{MaxPool{.stride = {3, 3}}}));
}

TEST(LayerKinds, InferTheShapesOfConvolutionsAndPools) {
  EXPECT_EQ(shape_after({{28, 28, 1}}, Conv2d{.filters = 20, .kernel = {5, 5}}), (Shape{{24, 24, 20}}));
  EXPECT_EQ(shape_after({{7, 9, 4}},
                        Conv2d{.filters = 6, .kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0}, .groups = 2}),
            (Shape{{4, 3, 6}}));
  EXPECT_EQ(shape_after({{9, 9, 2}}, Conv2d{.filters = 1, .kernel = {3, 3}, .dilation = {4, 2}}), (Shape{{1, 5, 1}}));
  EXPECT_EQ(shape_after({{24, 24, 20}}, MaxPool{}), (Shape{{12, 12, 20}}));
  EXPECT_EQ(shape_after({{7, 8, 3}}, AveragePool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}),
            (Shape{{4, 4, 3}}));
  EXPECT_EQ(shape_after({{7, 8, 3}}, GlobalAveragePool{}), (Shape{{3}}));
  EXPECT_EQ(shape_after({{7, 8, 3}}, Flatten{}), (Shape{{168}}));
  EXPECT_EQ(shape_after({{7, 8, 3}}, Gelu{}), (Shape{{7, 8, 3}}));
}

TEST(LayerKinds, GiveConvolutionsTheWeightsOfTheirGroupsAndCountTheirProducts) {
  LayerList net;
  net.add(Conv2d{.filters = 6, .kernel = {3, 2}, .groups = 2});
  net.add(Dense{3});
  const Graph graph{"g", Shape{{5, 6, 4}}, DType::f32, net.finish()};
  EXPECT_EQ(graph.parameters()[0].name, "conv2d_1.weight");
  EXPECT_THAT(graph.parameters()[0].extents, ElementsAre(6, 2, 3, 2));
  EXPECT_DOUBLE_EQ(graph.parameters()[0].deviation, std::sqrt(1.0 / 12));
  EXPECT_THAT(graph.parameters()[1].extents, ElementsAre(6));
  const std::uint64_t conv = 3 * 5 * 6 * 12, dense = 90 * 3;
  EXPECT_EQ(graph.forward_flops(), 2 * (conv + dense));
  EXPECT_EQ(graph.training_flops(), 2 * (2 * conv + 3 * dense)) << "the image needs no gradient";
}

TEST(LayerKinds, HaveNoBiasWhereNoneIsWanted) {
  LayerList net;
  net.add(Conv2d{.filters = 6, .kernel = {3, 3}, .bias = false});
  net.add(Dense{.units = 3, .bias = false});
  const Graph graph{"g", Shape{{5, 6, 4}}, DType::f32, net.finish()};
  ASSERT_EQ(graph.parameters().size(), 2U);
  EXPECT_EQ(graph.parameters()[0].name, "conv2d_1.weight");
  EXPECT_EQ(graph.parameters()[1].name, "dense_1.weight");
  EXPECT_EQ(graph.parameters()[1].layer, 1U);
}

TEST(LayerKinds, TransposeHasTheExtentsInItsOrder) {
  EXPECT_EQ(shape_after({{7, 8, 3}}, Transpose{{2, 0, 1}}), (Shape{{3, 7, 8}}));
  EXPECT_EQ(shape_after({{7, 8, 3}}, Transpose{{1, 2, 0}}), (Shape{{8, 3, 7}}));
  EXPECT_EQ(shape_after({{7}}, Transpose{{0}}), (Shape{{7}}));
  const std::string wanted = "must have each of 0 to 2 once";
  EXPECT_THAT(refusal_on({{7, 8, 3}}, Transpose{{2, 0}}),
              HasSubstr("layer transpose_1: reads [7, 8, 3]; its order, [2, 0], " + wanted));
  EXPECT_THAT(refusal_on({{7, 8, 3}}, Transpose{{2, 0, 0}}), HasSubstr("its order, [2, 0, 0], " + wanted));
  EXPECT_THAT(refusal_on({{7, 8, 3}}, Transpose{{0, 1, 2, 3}}), HasSubstr("its order, [0, 1, 2, 3], " + wanted));
  EXPECT_THAT(refusal_on({{7, 8, 3}}, Transpose{{0, 1, 9}}), HasSubstr("order is [0, 1, 9]; it must be at least 0"));
  EXPECT_THAT(refusal_on({{7, 8, 3}}, Transpose{}), HasSubstr("its order, [], " + wanted));
}

TEST(LayerKinds, NameLayerAndShapesThatDoNotFit) {
  EXPECT_THAT(refusal_on({{784}}, Conv2d{.filters = 2}),
              HasSubstr("graph g, layer conv2d_1: reads [784]; it takes an image of three extents"));
  EXPECT_THAT(
      refusal_on({{4, 8, 1}}, Conv2d{.filters = 2, .kernel = {5, 5}}),
      HasSubstr("layer conv2d_1: its kernel covers a height of 5, more than that of the image it reads, [4, 8, 1]"));
  EXPECT_THAT(refusal_on({{8, 8, 3}}, Conv2d{.filters = 4, .groups = 2}),
              HasSubstr("reads [8, 8, 3]; its 4 filters and the 3 channels cannot be cut into 2 groups"));
  EXPECT_THAT(refusal_on({{8, 8, 3}}, Conv2d{}),
              HasSubstr("layer conv2d_1 (conv2d): filters is 0; it must be at least 1"));
  EXPECT_THAT(refusal_on({{8, 8, 3}}, Conv2d{.filters = 1, .stride = {1, 0}}), HasSubstr("stride is 1x0"));
  EXPECT_THAT(refusal_on({{8, 8, 3}}, MaxPool{.kernel = {2, 2}, .padding = {2, 0}}),
              HasSubstr("layer max_pool_1: its padding must be less than its kernel"));
  EXPECT_THAT(refusal_on({{65536, 65536, 1}}, Conv2d{.filters = 0xffffffff}), HasSubstr("more than"));
}

std::string refusal_of_loss(Operation loss, Field field) {
  try {
    const Graph graph{"g",
                      {{"image", {{4}}, DType::f32}, std::move(field)},
                      DType::f32,
                      {{"a", Dense{3}}, {"loss", std::move(loss)}}};
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LayerKinds, NameTheLossAndTheFieldThatDoNotFit) {
  const Field labels{"label", {}, DType::i32}, three{"label", {{3}}, DType::f32}, four{"label", {{2, 2}}, DType::f32};
  EXPECT_EQ(refusal_of_loss(SmoothL1{}, three), "accepted");
  EXPECT_THAT(refusal_of_loss(SmoothL1{}, labels), HasSubstr("layer loss: label is not a field of numbers"));
  EXPECT_THAT(refusal_of_loss(SigmoidCrossEntropy{}, four),
              HasSubstr("layer loss: reads [3] and targets of [2, 2] in field label; there must be as many"));
  EXPECT_THAT(refusal_of_loss(SoftmaxCrossEntropy{}, three), HasSubstr("has no labels"));
  EXPECT_THAT(refusal_of_loss(SoftmaxCrossEntropy{.smoothing = 1.5}, labels), HasSubstr("smoothing is 1.5"));
  EXPECT_THAT(refusal_of_loss(SoftmaxCrossEntropy{.ignore = -2}, labels), HasSubstr("ignore is -2"));
  EXPECT_THAT(refusal_of_loss(SmoothL1{1, 0}, three), HasSubstr("beta is 0; it must be above 0"));
}

TEST(LayerKinds, GiveAnL2NormAScaleOfEachChannelThatStartsAsItsAttribute) {
  LayerList net;
  net.add(L2Norm{.scale = 3});
  net.add(Dense{3});
  const Graph graph{"g", Shape{{2, 4, 5}}, DType::f32, net.finish()};
  EXPECT_EQ(graph.output_of(0), (Shape{{2, 4, 5}}));
  EXPECT_EQ(graph.parameters()[0].name, "l2_norm_1.scale");
  EXPECT_THAT(graph.parameters()[0].extents, ElementsAre(5));
  EXPECT_EQ(graph.parameters()[0].mean, 3);
}

TEST(LayerKinds, GiveABatchNormScaleShiftAndStatisticsOfEachChannel) {
  LayerList net;
  net.add(BatchNorm{.momentum = 0.25});
  net.add(Dense{3});
  const Graph graph{"g", Shape{{5, 6, 4}}, DType::f32, net.finish()};
  EXPECT_EQ(graph.output_of(0), (Shape{{5, 6, 4}}));
  std::vector<std::string> names;
  for (std::size_t p = 0; p < 4; ++p) {
    names.push_back(graph.parameters()[p].name);
    EXPECT_THAT(graph.parameters()[p].extents, ElementsAre(4));
    EXPECT_EQ(graph.parameters()[p].momentum, p < 2 ? 0 : 0.25) << names.back();
  }
  EXPECT_THAT(names, ElementsAre("batch_norm_1.weight", "batch_norm_1.bias", "batch_norm_1.running_mean",
                                 "batch_norm_1.running_var"));
  const Layout layout{graph};
  std::vector<float> start(layout.count_elements(), 7);
  fill_initial(graph, layout, 1, start);
  for (const auto& [parameter, value] : {std::pair{0, 1}, {1, 0}, {2, 0}, {3, 1}})
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(start[layout.entries()[parameter].first + i], value) << parameter;
  EXPECT_THAT(refusal_on({{5, 4}}, BatchNorm{}),
              HasSubstr("layer batch_norm_1: reads [5, 4]; it takes an image of height, width and channels"));
  EXPECT_THAT(refusal_on({{4}}, BatchNorm{.momentum = 0}), HasSubstr("momentum is 0; it must be above 0"));
}

TEST(LayerKinds, PutTensorsBehindOneAnotherAndMultiplyThoseOfOneShape) {
  const auto joined = [](Operation operation, std::uint32_t filters, std::uint32_t kernel) {
    LayerList net;
    const std::string a = net.add(Conv2d{.filters = 3});
    const std::string b = net.add(Conv2d{.filters = filters, .kernel = {kernel, 1}}, {"image"});
    net.add(std::move(operation), {a, b});
    net.add(Dense{3});
    try {
      return Graph{"g", Shape{{5, 6, 4}}, DType::f32, net.finish()}.output_of(2).to_string();
    } catch (const Error& error) {
      return std::string{error.what()};
    }
  };
  EXPECT_EQ(joined(Concat{}, 5, 1), "[5, 6, 8]");
  EXPECT_EQ(joined(Multiply{}, 3, 1), "[5, 6, 3]");
  EXPECT_THAT(joined(Multiply{}, 5, 1), HasSubstr("tensors of [5, 6, 3] and [5, 6, 5] cannot be multiplied"));
  EXPECT_THAT(joined(Concat{}, 5, 2),
              HasSubstr("tensors of [5, 6, 3] and [4, 6, 5] cannot be concatenated; they may differ only in "
                        "their last extent"));
}

/// A decoder of one block on 8 bytes a sample, with a label for each.
Graph small_decoder(std::uint32_t vocabulary = 256, std::uint32_t heads = 2) {
  LayerList net;
  net.add(Embedding{.vocabulary = vocabulary, .width = 4});
  net.add(Position{});
  net.add(LayerNorm{});
  net.add(Dense{12, false});
  net.add(Attention{.heads = heads, .causal = true});
  net.add(Dense{256, false});
  return {"g", {{"tokens", {{8}}, DType::i32, 256}, {"label", {{8}}, DType::i32, 256}}, DType::f32, net.finish()};
}

TEST(LayerKinds, CountWeightsAndProductsOfSequences) {
  const Graph graph = small_decoder();
  EXPECT_EQ(graph.output_of(4), (Shape{{8, 4}}));
  EXPECT_EQ(graph.count_classes(), 256U) << "at each place";
  EXPECT_EQ(graph.count_parameters(), 256 * 4 + 8 * 4 + 2 * 4 + 12 * 5 + 256 * 5U);
  EXPECT_EQ(graph.forward_flops(), 2 * (8 * 12 * 4 + 2 * 36 * 4 + 8 * 256 * 4U)) << "8 places read 36 places";
  EXPECT_EQ(graph.training_flops(), 3 * graph.forward_flops());
  EXPECT_EQ(graph.parameters()[2].mean, 1) << "a norm's weight";
  EXPECT_THAT(graph.to_string(), HasSubstr("\"attention_1\"=attention(2, causal=true)"));
  EXPECT_THAT(graph.to_string(), HasSubstr("\"dense_1\"=dense(12, flatten=false)"));
}

TEST(LayerKinds, NameWhatDoesNotFitASequence) {
  using testing::error_of;
  EXPECT_THAT(error_of(Code::invalid, [] { small_decoder(255); }),
              HasSubstr("layer embedding_1: has a vocabulary of 255, the tokens that it reads are 0 to 255"));
  EXPECT_THAT(error_of(Code::invalid, [] { small_decoder(256, 3); }),
              HasSubstr("reads [8, 12]; it takes [length, 3 width], and a width that can be cut into 3 heads"));
  EXPECT_THAT(refusal_on({{8}}, Embedding{4, 4}),
              HasSubstr("reads image, which has no tokens; this layer reads a field"));
  EXPECT_THAT(refusal_on({{8}}, Position{}), HasSubstr("reads [8]; it takes a sequence of two extents"));
}

TEST(LayerKinds, TakeSamplesKeysForNeitherTokensNorLabels) {
  using testing::error_of;
  const auto graph_of = [](std::vector<Layer> layers) {
    const std::vector<Field> fields{{"image", {{2, 5}}, DType::f32}, {"label", {}, DType::i32}, sample_key_field()};
    Graph{"g", fields, DType::f32, std::move(layers)};
  };
  const std::string key{kSampleKey};
  EXPECT_THAT(error_of(Code::invalid,
                       [&] {
                         graph_of({{"e", Embedding{4, 4}, {key}}, {"loss", SoftmaxCrossEntropy{}}});
                       }),
              HasSubstr("layer e: reads sample_key, which has no tokens"));
  EXPECT_THAT(error_of(Code::invalid,
                       [&] {
                         graph_of({{"a", Dense{3, false}}, {"loss", SoftmaxCrossEntropy{}, {"a", key}}});
                       }),
              HasSubstr("layer loss: sample_key has no labels"));
}

TEST(LayerList, NamesLayersByKindAndNumberAndEndsWithALoss) {
  LayerList net;
  EXPECT_EQ(net.add(Conv2d{.filters = 2}), "conv2d_1");
  EXPECT_EQ(net.add(Tanh{}, {}, "conv2d_2"), "conv2d_2");
  EXPECT_EQ(net.add(Conv2d{.filters = 2}), "conv2d_3") << "a name that is taken is passed over";
  const std::vector<Layer> layers = net.finish();
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_EQ(layers.back(), (Layer{"loss", SoftmaxCrossEntropy{}}));
  net.add(SoftmaxCrossEntropy{0.5});
  EXPECT_EQ(net.finish().size(), 4U) << "it has its own";
}

}  // namespace
}  // namespace troupe
