#include "runtime/model/layer_kinds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_list.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What is wrong with these layers on an image, which a dense layer reads in the end.
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
              HasSubstr("reads image, which has numbers; this layer reads a field"));
  EXPECT_THAT(refusal_on({{8}}, Position{}), HasSubstr("reads [8]; it takes a sequence of two extents"));
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
