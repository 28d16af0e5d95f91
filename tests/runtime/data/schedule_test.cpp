#include "runtime/data/schedule.hpp"

#include <gtest/gtest.h>

#include <vector>

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
  EXPECT_EQ(s.epoch_part({2}), 1);
  EXPECT_TRUE(s.reports({4}));
  EXPECT_EQ(s.epoch_number({4}), 2u);
}

TEST(Schedule, ReportsTheLastStepEvenInsideAnEpoch) {
  const Schedule s{.train_samples = 1000, .test_samples = 10, .rows = 10, .ranks = 1, .steps = 7};
  EXPECT_TRUE(s.reports({6}));
  EXPECT_EQ(s.epoch_number({6}), 1u);
  EXPECT_DOUBLE_EQ(s.epoch_part({6}), 0.07);
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

Schedule growing() {
  const BatchChange changes[] = {{0, 10}, {100, 20}, {190, 40}};
  return with_batches({.train_samples = 200, .ranks = 2, .steps = 20}, changes);
}

TEST(Schedule, ChangesTheBatchSizeWithTheFirstStepThatBeginsAtItsSampleOrAfterIt) {
  const Schedule s = growing();
  std::vector<std::uint64_t> rows;
  std::vector<std::uint64_t> before;
  for (std::uint64_t step = 0; step < 10; ++step) {
    rows.push_back(s.global_rows({step}));
    before.push_back(s.samples_before({step}));
  }
  EXPECT_EQ(rows, (std::vector<std::uint64_t>{20, 20, 20, 20, 20, 40, 40, 40, 80, 80}));
  EXPECT_EQ(before, (std::vector<std::uint64_t>{0, 20, 40, 60, 80, 100, 140, 180, 220, 300}));
}

TEST(Schedule, CountsStepsAndEpochsAcrossChangesOfTheBatchSize) {
  const Schedule s = growing();
  EXPECT_EQ(s.steps_until(0), 0u);
  EXPECT_EQ(s.steps_until(81), 5u);
  EXPECT_EQ(s.steps_until(100), 5u);
  EXPECT_EQ(s.steps_until(101), 6u);
  EXPECT_EQ(s.steps_until(220), 8u);
  EXPECT_EQ(s.steps_until(300), 9u);
  EXPECT_TRUE(s.ends_epoch({7}));  // 180 to 220
  EXPECT_FALSE(s.ends_epoch({8}));
  EXPECT_EQ(s.epochs_done({9}), 1u);
}

TEST(Schedule, GoesOnWithTheBatchSizeOfItsFirstSampleWhateverWorldCameBefore) {
  const BatchChange changes[] = {{0, 10}, {100, 20}, {190, 40}};
  const Schedule s =
      with_batches({.train_samples = 200, .ranks = 1, .steps = 20, .first_step = 7, .first_sample = 150}, changes);
  EXPECT_EQ(s.global_rows({7}), 20u);
  EXPECT_EQ(s.global_rows({8}), 20u);
  EXPECT_EQ(s.samples_before({9}), 190u);
  EXPECT_EQ(s.global_rows({9}), 40u);
}

TEST(Schedule, TakesTheLaterOfTwoChangesThatBeginWithOneStep) {
  const BatchChange changes[] = {{0, 100}, {50, 7}, {60, 200}};
  const Schedule s = with_batches({.train_samples = 1000, .ranks = 1, .steps = 20}, changes);
  EXPECT_EQ(s.global_rows({0}), 100u);
  EXPECT_EQ(s.global_rows({1}), 200u);
}

}  // namespace
}  // namespace troupe
