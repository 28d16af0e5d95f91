#include "runtime/exchange/step_totals.hpp"

#include <gmock/gmock.h>

#include <random>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

StepSums sums_of(std::uint32_t rank, std::uint64_t step) {
  return {.loss = rank + 0.1 * static_cast<double>(step), .correct = step, .samples = 10 + rank};
}

TEST(StepTotals, AreTakenInTheOrderOfStepsWhateverTheOrderInWhichRanksTellThem) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint64_t kSteps = 40;
  std::mt19937 random{7};
  StepTotals totals{kRanks, {100}};
  std::vector<std::uint64_t> told(kRanks, 0);
  std::vector<StepTotals::Total> taken;
  while (taken.size() < kSteps) {
    const auto rank = static_cast<std::uint32_t>(random() % kRanks);
    if (told[rank] == kSteps) continue;
    totals.add({rank}, {100 + told[rank]}, sums_of(rank, told[rank]));
    ++told[rank];
    while (const auto total = totals.take()) taken.push_back(*total);
  }
  for (std::uint64_t k = 0; k < kSteps; ++k) {
    StepSums expected;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) expected.add(sums_of(rank, k));
    EXPECT_EQ(taken[k], (StepTotals::Total{{100 + k}, expected}));
  }
  EXPECT_TRUE(totals.has_all_of({0}));
}

TEST(StepTotals, RefusesAStepThatARankHasToldOrLeftOut) {
  StepTotals totals{2, {0}};
  totals.add({1}, {0}, {});
  EXPECT_THROW(totals.add({1}, {0}, {}), Error);
  EXPECT_THROW(totals.add({1}, {2}, {}), Error);
  EXPECT_THROW(totals.add({2}, {0}, {}), Error);
}

}  // namespace
}  // namespace troupe
