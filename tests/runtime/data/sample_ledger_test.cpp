#include "runtime/data/sample_ledger.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"

namespace troupe {
namespace {

using Rows = std::vector<std::uint32_t>;
using Weights = std::vector<std::uint64_t>;

std::uint64_t sum_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}); }

constexpr SplitRange kWide{0.05, 4};

TEST(ShareOut, FollowsTheWeightsInWholeQuanta) {
  EXPECT_EQ(share_out(100, Weights{1, 1, 1, 1}, kWide), (Rows{104, 104, 96, 96}));
  EXPECT_EQ(share_out(128, Weights{3, 1}, kWide), (Rows{192, 64}));
  EXPECT_EQ(share_out(10, Weights{7, 3}, kWide), (Rows{14, 6}));
}

TEST(ShareOut, GivesEveryoneTheLeastAndNobodyMoreThanTheMost) {
  EXPECT_EQ(share_out(100, Weights{1000000, 1, 1, 1}, kWide), (Rows{376, 8, 8, 8}));
  EXPECT_EQ(share_out(100, Weights{1000000, 1, 1, 1}, {0.25, 2}), (Rows{200, 72, 64, 64}));
  EXPECT_EQ(share_out(100, Weights{1000000, 1, 1, 1}, {0, 4}), (Rows{400, 0, 0, 0}));
}

TEST(ShareOut, KeepsTheSumAndTheRoomWhateverTheWeights) {
  const std::uint64_t seed = 5;
  for (std::uint64_t round = 0; round < 500; ++round) {
    const auto draw = [&](std::uint64_t what, std::uint64_t below) {
      return random_below(sub_key(seed, round), what, below);
    };
    const auto rows = static_cast<std::uint32_t>(1 + draw(0, 300));
    const SplitRange range{static_cast<double>(draw(1, 11)) / 10, 1 + static_cast<double>(draw(2, 50)) / 10};
    Weights weights;
    for (std::uint64_t rank = 0, ranks = 1 + draw(3, 9); rank < ranks; ++rank)
      weights.push_back(draw(4 + rank, 1'000'000) * draw(100 + rank, 2));
    const Rows found = share_out(rows, weights, range);
    ASSERT_EQ(sum_of(found), std::uint64_t{rows} * weights.size()) << round;
    for (const std::uint32_t one : found) ASSERT_LE(one, std::max(rows, max_rows_of(rows, range))) << round;
    const auto least = static_cast<std::uint32_t>(range.least * rows) / quantum_of(rows) * quantum_of(rows);
    for (const std::uint32_t one : found) ASSERT_GE(one, least) << round;
  }
}

Schedule three_ranks() { return {.train_samples = 1000, .test_samples = 100, .rows = 10, .ranks = 3, .steps = 99}; }

TEST(SampleLedger, GivesRanksNeighbouringPartsOfOneStepsSamples) {
  const SampleLedger ledger{three_ranks()};
  EXPECT_EQ(ledger.part({2}, {0}), (SamplePart{60, 10}));
  EXPECT_EQ(ledger.part({2}, {2}), (SamplePart{80, 10}));
  EXPECT_EQ(ledger.part({3}, {0}), (SamplePart{90, 10}));
  EXPECT_TRUE(ledger.knows({1'000'000'000'000}));
}

TEST(SampleLedger, SharesTheTestSetOutWithoutGaps) {
  for (std::uint32_t ranks = 1; ranks <= 7; ++ranks) {
    const SampleLedger ledger{{.train_samples = 100, .test_samples = 5, .rows = 2, .ranks = ranks, .steps = 1}};
    std::uint64_t next = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const SamplePart part = ledger.test_part({0}, {rank});
      EXPECT_EQ(part.first, next);
      EXPECT_EQ(part.first, 5 * rank / ranks);
      next += part.count;
    }
    EXPECT_EQ(next, 5u);
  }
}

TEST(SampleLedger, CutsTheSamplesOfAStepByTheRowsOfItsSpan) {
  SampleLedger ledger{three_ranks(), kWide, {4}};
  EXPECT_FALSE(ledger.knows({4}));
  EXPECT_THROW((void)ledger.part({4}, {0}), Error);
  ledger.append({{4}, {20, 0, 10}}, {8});
  EXPECT_EQ(ledger.part({3}, {1}), (SamplePart{100, 10}));
  EXPECT_EQ(ledger.part({4}, {0}), (SamplePart{120, 20}));
  EXPECT_EQ(ledger.part({4}, {1}), (SamplePart{140, 0}));
  EXPECT_EQ(ledger.part({7}, {2}), (SamplePart{230, 10}));
  EXPECT_EQ(ledger.test_part({5}, {2}), (SamplePart{66, 34}));
  EXPECT_FALSE(ledger.knows({8}));
}

TEST(SampleLedger, AcceptsTheSameUpdateTwiceAndUpdatesOfAHorizonAlone) {
  SampleLedger ledger{three_ranks(), kWide, {4}};
  const LedgerSpan span{{4}, {20, 0, 10}};
  ledger.append({{0}, {10, 10, 10}}, {4});
  ledger.append(span, {8});
  ledger.append(span, {8});
  ledger.append(span, {12});
  ledger.append(span, {10});
  EXPECT_EQ(ledger.horizon(), Step{12});
  EXPECT_EQ(ledger.rows({11}), span.rows);
}

TEST(SampleLedger, RefusesGapsOtherSumsAndChangesOfWhatIsKnown) {
  SampleLedger ledger{three_ranks(), kWide, {4}};
  EXPECT_THROW(ledger.append({{5}, {10, 10, 10}}, {8}), Error);
  EXPECT_THROW(ledger.append({{4}, {10, 10, 11}}, {8}), Error);
  EXPECT_THROW(ledger.append({{4}, {15, 15}}, {8}), Error);
  EXPECT_THROW(ledger.append({{3}, {20, 0, 10}}, {8}), Error);
}

TEST(SampleLedger, SharesALaterBatchSizeOutInTheProportionOfItsSpan) {
  const BatchChange changes[] = {{0, 64}, {640, 128}};
  const Schedule schedule = with_batches({.train_samples = 1000, .ranks = 2, .steps = 20}, changes);
  SampleLedger ledger{schedule, kWide, {2}};
  ledger.append({{2}, {96, 32}}, {20});
  EXPECT_EQ(ledger.rows({4}), (Rows{96, 32}));
  EXPECT_EQ(ledger.rows({5}), (Rows{192, 64}));
  EXPECT_EQ(ledger.part({6}, {1}), (SamplePart{640 + 256 + 192, 64}));
  SampleLedger equal{schedule};
  EXPECT_EQ(equal.rows({5}), (Rows{128, 128}));
}

}  // namespace
}  // namespace troupe
