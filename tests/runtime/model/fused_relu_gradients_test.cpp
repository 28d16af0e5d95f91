#include "runtime/model/fused_relu_gradients.hpp"

#include <gmock/gmock.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MATCHER_P3(IsHidden, before, relu, after, "") { return arg.before == before && arg.relu == relu && arg.after == after; }

std::vector<FusedReluGradient> found_in(Shape image, std::vector<Layer> layers) {
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return fused_relu_gradients({"net", std::move(image), DType::f32, std::move(layers)});
}

TEST(FusedReluGradients, AreThoseBetweenDenseLayers) {
  EXPECT_THAT(found_in({{6}}, {{"a", Dense{5}}, {"r", Relu{}}, {"b", Dense{4}}, {"s", Relu{}}, {"out", Dense{3}}}),
              ElementsAre(IsHidden(0U, 1U, 2U), IsHidden(2U, 3U, 4U)));
}

TEST(FusedReluGradients, MayLieAtSeveralPlaces) {
  const Dense at_each{.units = 5, .flatten = false};
  EXPECT_THAT(found_in({{4, 6}}, {{"a", at_each}, {"r", Relu{}}, {"b", at_each}, {"out", Dense{3}}}),
              ElementsAre(IsHidden(0U, 1U, 2U)));
}

TEST(FusedReluGradients, AreNotWhereTheNextLayerTakesAllPlacesAtOnce) {
  EXPECT_THAT(found_in({{4, 6}}, {{"a", Dense{.units = 5, .flatten = false}}, {"r", Relu{}}, {"out", Dense{3}}}),
              IsEmpty());
}

TEST(FusedReluGradients, AreNotBesideLayersOfOtherKinds) {
  EXPECT_THAT(found_in({{6}}, {{"r", Relu{}}, {"out", Dense{3}}}), IsEmpty());
  EXPECT_THAT(found_in({{6}}, {{"a", Dense{5}}, {"r", Tanh{}}, {"out", Dense{3}}}), IsEmpty());
  EXPECT_THAT(found_in({{6}}, {{"a", Dense{5}}, {"t", Tanh{}}, {"r", Relu{}}, {"out", Dense{3}}}), IsEmpty());
  EXPECT_THAT(found_in({{6}}, {{"a", Dense{5}}, {"r", Relu{}}, {"t", Tanh{}}, {"out", Dense{3}}}), IsEmpty());
}

TEST(FusedReluGradients, AreNotWhereSomethingElseReadsThemOrWhatTheyRead) {
  EXPECT_THAT(found_in({{6}}, {{"a", Dense{5}}, {"r", Relu{}}, {"b", Dense{5}}, {"sum", Add{}, {"b", "r"}}}),
              IsEmpty());
  EXPECT_THAT(found_in({{6}}, {{"a", Dense{5}}, {"r", Relu{}}, {"b", Dense{5}}, {"sum", Add{}, {"b", "a"}}}),
              IsEmpty());
}

TEST(FusedReluGradients, HaveMasksOfWholeStretchesOf128Bits) {
  EXPECT_EQ(relu_mask_bytes(3, Shape{{1}}), 3U * 16);
  EXPECT_EQ(relu_mask_bytes(3, Shape{{128}}), 3U * 16);
  EXPECT_EQ(relu_mask_bytes(3, Shape{{7, 129}}), 3U * 7 * 32);
}

}  // namespace
}  // namespace troupe
