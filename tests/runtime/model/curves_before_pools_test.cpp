#include "runtime/model/curves_before_pools.hpp"

#include <gmock/gmock.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MATCHER_P2(IsCurveBefore, curve, pool, "") { return arg.curve == curve && arg.pool == pool; }

std::vector<CurveBeforePool> curves_in(std::vector<Layer> layers) {
  layers.insert(layers.begin(), {"conv", Conv2d{.filters = 4, .kernel = {3, 3}}});
  layers.push_back({"out", Dense{3}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return curves_before_pools({"net", {{8, 8, 3}}, DType::f32, std::move(layers)});
}

TEST(CurvesBeforePools, AreThoseBehindConvolutionsThatFallNowhere) {
  const Conv2d conv{.filters = 4, .kernel = {1, 1}};
  EXPECT_THAT(curves_in({{"r", Relu{}}, {"p", MaxPool{}}, {"more", conv}, {"t", Tanh{}}, {"q", MaxPool{}}}),
              ElementsAre(IsCurveBefore(1U, 2U), IsCurveBefore(4U, 5U)));
  EXPECT_THAT(curves_in({{"s", Sigmoid{}}, {"p", MaxPool{}}}), ElementsAre(IsCurveBefore(1U, 2U)));
  EXPECT_THAT(curves_in({{"g", Gelu{}}, {"p", MaxPool{}}}), IsEmpty());
  EXPECT_THAT(curves_in({{"r", Relu{}}, {"p", AveragePool{}}}), IsEmpty());
  EXPECT_THAT(curves_in({{"norm", BatchNorm{}}, {"r", Relu{}}, {"p", MaxPool{}}}), IsEmpty());
  EXPECT_THAT(curves_in({{"p", MaxPool{}}, {"t", Tanh{}}, {"q", MaxPool{}}}), IsEmpty());
}

TEST(CurvesBeforePools, AreNotWhereSomethingElseReadsThemOrWhatTheyRead) {
  EXPECT_THAT(
      curves_in({{"r", Relu{}}, {"p", MaxPool{}, {"r"}}, {"q", AveragePool{}, {"r"}}, {"sum", Add{}, {"p", "q"}}}),
      IsEmpty());
  EXPECT_THAT(curves_in({{"r", Relu{}}, {"p", MaxPool{}}, {"q", MaxPool{}, {"conv"}}, {"sum", Add{}, {"p", "q"}}}),
              IsEmpty());
}

}  // namespace
}  // namespace troupe
