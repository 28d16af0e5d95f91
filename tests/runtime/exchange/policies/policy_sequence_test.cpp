#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "runtime/exchange/policies/policy.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kSamples = 10;  // of all ranks, in a step

StepActions ask(PolicySequence& policies, std::uint64_t step) {
  return policies.next({.step = Step{step}, .samples_before = step * kSamples, .samples = kSamples});
}

/// Policies and the ends of their phases, step by step, of a rank that gets each order before its step `hears`.
struct Order {
  std::uint64_t at = 0;
  PolicyKind kind = PolicyKind::sync;
  std::uint64_t hears = 0;  // at most at - 1
};
std::vector<std::pair<PolicyKind, bool>> run(const std::vector<PolicyPhase>& phases, const std::vector<Order>& actions,
                                             std::uint64_t steps) {
  PolicySequence policies{phases, 2};
  std::vector<std::pair<PolicyKind, bool>> seen;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (const Order& order : actions)
      if (order.hears == step) policies.switch_at(Step{order.at}, {.kind = order.kind});
    const StepActions orders_of_step = ask(policies, step);
    seen.emplace_back(policies.policy().kind, orders_of_step.finish);
  }
  return seen;
}

TEST(PolicySequence, TakesTheSamePoliciesInTheSameStepsWhetherASwitchWasInProgressOrDoneWhenTheNextWasOrdered) {
  const std::vector<PolicyPhase> phases{{.policy = {.kind = PolicyKind::ssp}}};
  // One rank has begun step 4 when it hears of the second switch; the other is two steps behind.
  const auto ahead = run(phases, {{4, PolicyKind::async, 2}, {6, PolicyKind::ssp, 5}}, 9);
  const auto behind = run(phases, {{4, PolicyKind::async, 2}, {6, PolicyKind::ssp, 3}}, 9);
  EXPECT_EQ(ahead, behind);
  EXPECT_EQ(behind[4].first, PolicyKind::async);
  EXPECT_TRUE(behind[3].second && behind[5].second) << "each tenancy ends with a barrier";
}

TEST(PolicySequence, KeepsAPhaseThatBeginsBeforeAnOrderedSwitchAndNoLaterOne) {
  const std::vector<PolicyPhase> phases{{.policy = {}},
                                        {.from_samples = 40, .policy = {.kind = PolicyKind::async}},
                                        {.from_samples = 70, .policy = {.kind = PolicyKind::easgd}}};
  for (const std::uint64_t hears : {1, 5}) {
    const auto seen = run(phases, {{6, PolicyKind::ssp, hears}}, 9);
    EXPECT_EQ(seen[3].first, PolicyKind::sync) << hears;
    EXPECT_EQ(seen[4].first, PolicyKind::async) << hears;
    EXPECT_EQ(seen[6].first, PolicyKind::ssp) << hears;
    EXPECT_EQ(seen[8].first, PolicyKind::ssp) << hears;
  }
}

TEST(PolicySequence, TellsACheckpointHowManyStepsThePolicyOfTheNextStepHasTaken) {
  const std::vector<PolicyPhase> phases{{.policy = {}},
                                        {.from_samples = 40, .policy = {.kind = PolicyKind::async}},
                                        {.from_step = 6, .policy = {.kind = PolicyKind::async, .ramp_every = 1}}};
  PolicySequence whole{phases, 2};
  std::vector<PolicyProgress> seen;
  for (std::uint64_t step = 0; step < 8; ++step) {
    ask(whole, step);
    seen.push_back(whole.progress());
    PolicySequence rest{phases, 2};
    rest.resume(*seen.back().steps);
    ask(rest, step + 1);
    EXPECT_EQ(rest.steps_taken(), seen.back().steps) << "from step " << step + 1;
  }
  constexpr auto kSync = PolicyKind::sync, kAsync = PolicyKind::async;
  EXPECT_EQ(seen,
            (std::vector<PolicyProgress>{
                {kSync, 1}, {kSync, 2}, {kSync, 3}, {kSync, 0}, {kAsync, 1}, {kAsync, 0}, {kAsync, 1}, {kAsync, 2}}));
}

class NoRounds final : public RoundPolicy {
 public:
  StepActions next(const StepFacts&) override { return {.keep = true}; }
};

TEST(PolicySequence, AsksForAPolicyOfTheAppsOwnInPlaceOfEachThatExchangesInRounds) {
  std::vector<PolicySettings> asked;
  const auto make_own = [&](const PolicySettings& named, std::uint32_t ranks) -> std::unique_ptr<RoundPolicy> {
    EXPECT_EQ(ranks, 2U);
    asked.push_back(named);
    if (named.kind != PolicyKind::local_sgd) return nullptr;
    return std::make_unique<NoRounds>();
  };
  PolicySequence policies{{{.policy = {}},
                           {.from_step = 2, .policy = {.kind = PolicyKind::local_sgd}},
                           {.from_step = 4, .policy = {.kind = PolicyKind::ssp}}},
                          2,
                          make_own};
  std::vector<bool> kept;
  for (std::uint64_t step = 0; step < 6; ++step) kept.push_back(ask(policies, step).keep);
  EXPECT_EQ(kept, (std::vector<bool>{false, false, true, true, false, false}));
  ASSERT_EQ(asked.size(), 2U) << "and not for ssp, which shards host";
  EXPECT_EQ(asked[0].kind, PolicyKind::sync);
  EXPECT_EQ(asked[1].every_steps, 8U) << "with the named policy's defaults";
}

TEST(PolicySequence, GivesTheSameActionsToRanksThatGetOrdersAtRandomMoments) {
  constexpr PolicyKind kKinds[] = {PolicyKind::async, PolicyKind::ssp, PolicyKind::sync, PolicyKind::local_sgd};
  std::mt19937_64 dice{7};
  const auto below = [&](std::uint64_t end) { return std::uniform_int_distribution<std::uint64_t>{0, end - 1}(dice); };
  for (int round = 0; round < 500; ++round) {
    const std::vector<PolicyPhase> phases{{.policy = {.kind = kKinds[below(4)]}},
                                          {.from_samples = below(30) * kSamples, .policy = {.kind = kKinds[below(4)]}},
                                          {.from_step = 20 + below(10), .policy = {.kind = kKinds[below(4)]}}};
    std::vector<Order> first, second;
    std::uint64_t at = 1, heard[2] = {0, 0};
    for (int i = 0; i < 5; ++i) {
      // A rank hears before it begins the step before the switch, in the order in which switches were ordered.
      at += below(6) + (i == 0 ? 1 : 0);
      const PolicyKind kind = kKinds[below(4)];
      for (std::uint64_t& hears : heard) hears += below(at - hears);
      first.push_back({at, kind, heard[0]});
      second.push_back({at, kind, heard[1]});
    }
    ASSERT_EQ(run(phases, first, 45), run(phases, second, 45)) << "round " << round;
  }
}

}  // namespace
}  // namespace troupe
