#include "runtime/model/fused_norms.hpp"

#include <gmock/gmock.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MATCHER_P2(IsFused, norm, relu, "") { return arg.norm == norm && arg.relu == relu && !arg.sum; }
MATCHER_P4(IsFusedWithSum, norm, relu, sum, other, "") {
  return arg.norm == norm && arg.relu == relu && arg.sum && arg.sum->layer == sum && arg.sum->other == other;
}

/// Tensors are numbered from the fields on, of which there are two.
std::vector<FusedNorm> found_in(std::vector<Layer> layers) {
  layers.push_back({"out", Dense{3}, {layers.back().name}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}, {"out", std::string{kLabel}}});
  return fused_norms({"net",
                      {{std::string{kImage}, Shape{{6}}, DType::f32}, {std::string{kLabel}, {}, DType::i32, 3}},
                      DType::f32,
                      std::move(layers)});
}
Layer first() { return {"a", Dense{5}, {std::string{kImage}}}; }

TEST(FusedNorms, AreReadByAReluAlone) {
  EXPECT_THAT(found_in({first(), {"n", BatchNorm{}, {"a"}}, {"r", Relu{}, {"n"}}}), ElementsAre(IsFused(1U, 2U)));
  EXPECT_THAT(found_in({first(), {"n", BatchNorm{}, {"a"}}, {"r", Relu{}, {"n"}}, {"sum", Add{}, {"r", "n"}}}),
              IsEmpty());
  EXPECT_THAT(found_in({first(), {"n", BatchNorm{}, {"a"}}, {"t", Tanh{}, {"n"}}}), IsEmpty());
  EXPECT_THAT(found_in({first(), {"r", Relu{}, {"a"}}}), IsEmpty());
}

TEST(FusedNorms, AreReadByASumThatAReluAloneReads) {
  EXPECT_THAT(found_in({first(), {"n", BatchNorm{}, {"a"}}, {"sum", Add{}, {"a", "n"}}, {"r", Relu{}, {"sum"}}}),
              ElementsAre(IsFusedWithSum(1U, 3U, 2U, 2U)));
  EXPECT_THAT(found_in({first(), {"n", BatchNorm{}, {"a"}}, {"sum", Add{}, {"n", "n"}}, {"r", Relu{}, {"sum"}}}),
              IsEmpty());
  EXPECT_THAT(found_in({first(), {"n", BatchNorm{}, {"a"}}, {"sum", Add{}, {"n", "a", "a"}}, {"r", Relu{}, {"sum"}}}),
              IsEmpty());
}

TEST(FusedNorms, OfASumOfTwoNormsAreTheLaterOnes) {
  EXPECT_THAT(found_in({first(),
                        {"n", BatchNorm{}, {"a"}},
                        {"m", BatchNorm{}, {"a"}},
                        {"sum", Add{}, {"m", "n"}},
                        {"r", Relu{}, {"sum"}}}),
              ElementsAre(IsFusedWithSum(2U, 4U, 3U, 3U)));
}

}  // namespace
}  // namespace troupe
