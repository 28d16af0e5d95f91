#include "runtime/report/early_stop.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace troupe {
namespace {

TEST(EarlyStop, IsDueAfterSoManyEvaluationsWithoutImprovement) {
  EarlyStop stop{3, 0};
  EXPECT_FALSE(stop.add(1, 0.5));
  EXPECT_FALSE(stop.add(2, 0.6));
  EXPECT_FALSE(stop.add(3, 0.55));
  EXPECT_FALSE(stop.add(4, 0.123));
  EXPECT_FALSE(stop.add(5, 0.123));
  EXPECT_FALSE(stop.add(6, 0.2));
  EXPECT_TRUE(stop.add(7, 0.3));
  EXPECT_EQ(stop.reason(),
            "Stopped at epoch 7: the test loss has not improved for 3 evaluations; best 0.123 at epoch 4");
}

TEST(EarlyStop, CountsASmallImprovementAsNone) {
  EarlyStop stop{1, 0.1};
  EXPECT_FALSE(stop.add(1, 1.0));
  EXPECT_FALSE(stop.add(2, 0.8));
  EXPECT_TRUE(stop.add(3, 0.75));
  EXPECT_EQ(stop.reason(), "Stopped at epoch 3: the test loss has not improved for 1 evaluation; best 0.8 at epoch 2");
}

TEST(EarlyStop, CountsALossThatIsNotFiniteAsNoImprovement) {
  EarlyStop stop{2, 0};
  EXPECT_FALSE(stop.add(1, NAN));
  EXPECT_FALSE(stop.add(2, 0.5));
  EXPECT_FALSE(stop.add(3, -INFINITY));
  EXPECT_TRUE(stop.add(4, NAN));
  EarlyStop never{1, 0};
  EXPECT_TRUE(never.add(1, INFINITY));
  EXPECT_EQ(never.reason(), "Stopped at epoch 1: the test loss has not improved for 1 evaluation; none was finite");
}

}  // namespace
}  // namespace troupe
