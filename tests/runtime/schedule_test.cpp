#include "runtime/schedule.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Schedule, EndsAnEpochWithTheStepThatTakesItsLastSample) {
  const Schedule s{.train_samples = 1000, .test_samples = 100, .rows = 50, .ranks = 2, .steps = 20};
  for (std::uint64_t k = 0; k < 20; ++k) EXPECT_EQ(s.reports({k}), k % 10 == 9) << k;
  EXPECT_EQ(s.epoch_number({9}), 1u);
  EXPECT_EQ(s.epoch_number({19}), 2u);
}

TEST(Schedule, CountsAnEpochWhoseEdgeLiesInsideAStepAtThatStep) {
  const Schedule s{.train_samples = 250, .test_samples = 10, .rows = 100, .ranks = 1, .steps = 5};
  EXPECT_FALSE(s.reports({0}));
  EXPECT_FALSE(s.reports({1}));
  EXPECT_TRUE(s.reports({2}));
  EXPECT_EQ(s.epoch_number({2}), 1u);
  EXPECT_TRUE(s.reports({4}));
  EXPECT_EQ(s.epoch_number({4}), 2u);
}

TEST(Schedule, ReportsTheLastStepEvenInsideAnEpoch) {
  const Schedule s{.train_samples = 1000, .test_samples = 10, .rows = 10, .ranks = 1, .steps = 7};
  EXPECT_TRUE(s.reports({6}));
  EXPECT_EQ(s.epoch_number({6}), 1u);
  EXPECT_TRUE(s.evaluates({6}));
}

TEST(Schedule, EvaluatesEveryNthEpochAndTheLast) {
  const Schedule s{.train_samples = 10, .test_samples = 10, .rows = 10, .ranks = 1, .steps = 5, .evaluate_every = 2};
  EXPECT_FALSE(s.evaluates({0}));
  EXPECT_TRUE(s.evaluates({1}));
  EXPECT_FALSE(s.evaluates({2}));
  EXPECT_TRUE(s.evaluates({3}));
  EXPECT_TRUE(s.evaluates({4}));
}

TEST(Schedule, SharesTheTestSetOutWithoutGapsAndGivesEveryRankABatch) {
  for (std::uint32_t ranks = 1; ranks <= 7; ++ranks) {
    const Schedule s{.train_samples = 100, .test_samples = 5, .rows = 2, .ranks = ranks, .steps = 1};
    std::uint64_t next = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(s.test_first({r}), next);
      next += s.test_count({r});
      EXPECT_GE(s.test_batches({r}), 1u);
      EXPECT_GE(s.test_batches({r}) * 2, s.test_count({r}));
    }
    EXPECT_EQ(next, 5u);
  }
}

TEST(Schedule, GivesRanksNeighbouringPartsOfOneStepsSamples) {
  const Schedule s{.train_samples = 100, .rows = 10, .ranks = 3, .steps = 9};
  EXPECT_EQ(s.first_position({2}, {0}), 60u);
  EXPECT_EQ(s.first_position({2}, {2}), 80u);
  EXPECT_EQ(s.first_position({3}, {0}), 90u);
}

}  // namespace
}  // namespace troupe
