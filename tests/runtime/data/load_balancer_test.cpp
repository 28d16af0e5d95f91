#include "runtime/data/load_balancer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

namespace troupe {
namespace {

using Rows = std::vector<std::uint32_t>;

/// Ranks whose step takes a fixed time and so many microseconds a sample, in a group that waits for the last.
struct Ranks {
  std::vector<double> us_a_sample;
  std::vector<double> us_a_step;
  std::vector<double> load_us = std::vector<double>(us_a_sample.size());
  std::optional<std::uint32_t> held_back{};  // a rank that gets 1.5 ms of a core in each 10 ms
};

/// How long so much work takes with 1.5 ms of a core in each 10 ms, the first of them at once.
double held_back_us(double work_us) {
  const double periods = std::ceil(work_us / 1500) - 1;
  return 10000 * periods + (work_us - 1500 * periods);
}

constexpr std::uint64_t kStepsAReport = 4;

/// Feeds a coordinator with what its ranks do under the shares it gives, and keeps what it says.
class Group {
 public:
  Group(Ranks ranks, LoadBalancerOptions options, std::uint32_t rows = 100)
      : ranks_(std::move(ranks)),
        schedule_{.train_samples = 1000000,
                  .rows = rows,
                  .ranks = static_cast<std::uint32_t>(ranks_.us_a_sample.size()),
                  .steps = 1'000'000},
        balancer(schedule_, options),
        ledger(schedule_, options.range, balancer.until()) {}

  void run(std::uint64_t steps) {
    for (const std::uint64_t end = step_ + steps; step_ < end; step_ += kStepsAReport) report();
  }
  /// What ranks spend on loading and computing in the step that comes next, the slowest of them.
  double slowest_us() const {
    double most = 0;
    for (std::uint32_t rank = 0; rank < schedule_.ranks; ++rank) most = std::max(most, own_us(rank, {step_}));
    return most;
  }

 private:
  double own_us(std::uint32_t rank, Step step) const {
    const double work = ranks_.us_a_step[rank] + ranks_.us_a_sample[rank] * ledger.rows(step)[rank];
    return ranks_.load_us[rank] + (ranks_.held_back == rank ? held_back_us(work) : work);
  }
  void report() {
    for (std::uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
      RankTimes times{.rank = rank, .first = step_};
      for (std::uint64_t k = 0; k < kStepsAReport; ++k) {
        const Step step{step_ + k};
        double last = 0;
        for (std::uint32_t other = 0; other < schedule_.ranks; ++other) last = std::max(last, own_us(other, step));
        const double own = own_us(rank, step);
        times.samples += ledger.rows(step)[rank];
        times.spent_ns[0] += static_cast<std::int64_t>(1e3 * ranks_.load_us[rank]);
        times.spent_ns[1] += static_cast<std::int64_t>(1e3 * (own - ranks_.load_us[rank]));
        times.spent_ns[4] += static_cast<std::int64_t>(1e3 * (last - own));
        times.waits_us.push_back(static_cast<std::uint32_t>(last - own));
      }
      const auto window = balancer.take(times);
      if (!window) continue;
      windows.push_back(*window);
      if (window->change) changes.push_back(*window->change);
    }
    for (std::uint64_t k = 0; k < kStepsAReport; ++k)
      if (balancer.committed({step_ + k})) ++extended;
    ledger.append(balancer.span(), balancer.until());
  }

  const Ranks ranks_;
  const Schedule schedule_;
  std::uint64_t step_ = 0;

 public:
  LoadBalancer balancer;
  SampleLedger ledger;
  std::vector<ShareWindow> windows;
  std::vector<ShareChange> changes;
  std::uint64_t extended = 0;
};

LoadBalancerOptions adapting() { return {.adapts = true, .range = {0.05, 4}, .ahead = 6}; }

TEST(LoadBalancer, LeavesEqualRanksAlone) {
  Group group{{{100, 101, 99, 100}, {50, 50, 50, 50}}, adapting()};
  group.run(400);
  EXPECT_GT(group.windows.size(), 3u);
  EXPECT_TRUE(group.changes.empty());
}

TEST(LoadBalancer, MovesSamplesFromASlowRankToTheOthersUntilAllTakeAsLong) {
  Group group{{{100, 100, 100, 600}, {1000, 1000, 1000, 8000}}, adapting()};
  const double before = group.slowest_us();
  group.run(2000);
  const Rows rows = group.balancer.span().rows;
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0u), 400u);
  EXPECT_LT(rows[3], 16u);
  EXPECT_LT(group.slowest_us(), before / 4);
  // It comes to rest: the last quarter of the run changes nothing.
  EXPECT_LT(group.changes.back().span.first.value, 1500u);
}

TEST(LoadBalancer, ComesToRestWithARankThatIsHeldBackAfterABurst) {
  // What such a rank does in its first burst, or in the one after it, says little about more work.
  Group group{{.us_a_sample = {120, 120, 120, 75}, .us_a_step = {1100, 1100, 1100, 1100}, .held_back = 3}, adapting()};
  const double before = group.slowest_us();
  group.run(4000);
  EXPECT_LT(group.slowest_us(), before / 2.5);
  EXPECT_LT(group.changes.back().span.first.value, 3000u);
}

TEST(LoadBalancer, ChangesOnlyAfterTwoWindowsThatPromiseEnough) {
  Group group{{{100, 100, 100, 600}, {0, 0, 0, 0}}, adapting()};
  while (group.windows.size() < 1) group.run(4);
  EXPECT_TRUE(group.changes.empty());
  while (group.windows.size() < 2) group.run(4);
  EXPECT_EQ(group.changes.size(), 1u);
}

TEST(LoadBalancer, LeavesAGainBelowTheLeastOneAlone) {
  Group group{{{100, 100, 100, 104}, {0, 0, 0, 0}}, adapting()};
  group.run(1000);
  EXPECT_TRUE(group.changes.empty());
}

TEST(LoadBalancer, ChangesNothingWithEqualSplitButStillSaysWhoIsLast) {
  LoadBalancerOptions options = adapting();
  options.adapts = false;
  Group group{{{100, 100, 100, 600}, {0, 0, 0, 0}}, options};
  // Nothing moves the horizon either: an equal split needs none.
  std::optional<Straggler> found;
  for (std::uint64_t first = 0; first < 100 && !found; first += 2) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      RankTimes times{.rank = rank, .first = first, .samples = 200};
      times.spent_ns[1] = rank == 3 ? 120'000'000 : 20'000'000;
      times.waits_us.assign(2, rank == 3 ? 100 : 50'000);
      if (const auto window = group.balancer.take(times)) found = window->straggler;
    }
  }
  EXPECT_EQ(found, (Straggler{3, StepPart::compute}));
  EXPECT_FALSE(group.balancer.committed({50}));
}

TEST(LoadBalancer, NamesALoaderThatTheOthersWaitFor) {
  Group group{{{100, 100, 100}, {0, 0, 0}, {0, 30000, 0}}, adapting()};
  while (group.windows.empty()) group.run(4);
  EXPECT_EQ(group.windows.front().straggler, (Straggler{1, StepPart::load}));
  EXPECT_EQ(group.windows.front().ranks[1].last, group.windows.front().steps);
  EXPECT_NEAR(group.windows.front().ratio, 4, 0.1);
  const std::string told = to_string(*group.windows.front().straggler, group.windows.front());
  EXPECT_NE(told.find("rank 1"), told.npos) << told;
  EXPECT_NE(told.find("its load took 30 ms"), told.npos) << told;
}

TEST(LoadBalancer, NamesNobodyWhoIsAlwaysLastByALittle) {
  Group group{{{100, 100, 115}, {0, 0, 0}}, adapting()};
  while (group.windows.empty()) group.run(4);
  EXPECT_EQ(group.windows.front().ranks[2].last, group.windows.front().steps);
  EXPECT_FALSE(group.windows.front().straggler);
}

TEST(LoadBalancer, MovesTheHorizonBeforeAnybodyReachesIt) {
  Group group{{{100, 100}, {0, 0}}, adapting()};
  for (std::uint64_t step = 0; step < 1000; ++step) {
    EXPECT_GT(group.balancer.until().value, step + 6);
    group.balancer.committed({step});
  }
}

TEST(LoadBalancer, LeavesOutReportsOfAnEarlierSplit) {
  Group group{{{100, 100, 100, 600}, {0, 0, 0, 0}}, adapting()};
  while (group.changes.empty()) group.run(4);
  const auto first = group.changes.front().span.first.value;
  group.windows.clear();
  while (group.windows.empty()) group.run(4);
  EXPECT_GE(group.windows.front().first, first);
}

TEST(LoadBalancer, ChangesNothingWhenADeviceDoesNotMeasureItself) {
  Group group{{{100, 0}, {0, 0}}, adapting()};
  group.run(1000);
  EXPECT_TRUE(group.changes.empty());
}

TEST(LoadBalancer, SaysWhatChangesAndWhy) {
  Group group{{{100, 500}, {0, 0}}, adapting()};
  while (group.changes.empty()) group.run(4);
  const std::string told = to_string(group.changes.front(), group.windows.back());
  EXPECT_NE(told.find("take 168 32 rows, not 100 100"), told.npos) << told;
  EXPECT_NE(told.find("10000 2000 samples/s"), told.npos) << told;
  EXPECT_NE(told.find("16.8 ms a step, not 50"), told.npos) << told;
}

}  // namespace
}  // namespace troupe
