#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/hosted.hpp"
#include "tests/runtime/exchange/policies/hosted_network.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<ApplyUpdate> updates_in(const HostedActions& actions) {
  std::vector<ApplyUpdate> found;
  for (const auto& action : actions.orders)
    if (const auto* update = std::get_if<ApplyUpdate>(&action)) found.push_back(*update);
  return found;
}

std::vector<std::uint32_t> answered_in(const HostedActions& actions) {
  std::vector<std::uint32_t> found;
  for (const auto& action : actions.orders)
    if (const auto* answer = std::get_if<AnswerRead>(&action)) found.push_back(answer->worker.value);
  return found;
}

HostedPush push_of(std::uint32_t worker, std::uint64_t clock, std::uint64_t base = 0) {
  return {Rank{worker}, clock + 1, clock, base};
}

/// A shard's policy, with `workers` that have joined.
class Shard {
 public:
  Shard(const PolicySettings& settings, std::uint32_t workers) : policy_(make_plain_hosted_policy(settings, workers)) {
    for (std::uint32_t w = 0; w < workers; ++w) policy_->joined(Rank{w});
  }
  HostedActions joined(Rank worker) { return policy_->joined(worker); }
  HostedActions left(Rank worker) { return policy_->left(worker); }
  HostedActions pushed(const HostedPush& push) { return policy_->pushed(push); }
  HostedActions read(const HostedRead& read) { return policy_->read(read); }
  const HostedProgress& progress() const { return policy_->progress(); }
  const HostedPolicy& policy() const { return *policy_; }

 private:
  std::unique_ptr<HostedPolicy> policy_;
};
Shard ssp(std::uint32_t staleness, std::uint32_t workers) {
  return {{.kind = PolicyKind::ssp, .staleness = staleness}, workers};
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return "nothing was thrown";
}

// ---- one event after the other --------------------------------------------------------------------------------------

TEST(SspPolicy, WithoutStalenessAddsAWholeClockInTheOrderOfRanks) {
  Shard shard = ssp(0, 3);
  EXPECT_THAT(shard.pushed(push_of(2, 0)).orders, IsEmpty());
  EXPECT_THAT(shard.pushed(push_of(0, 0)).orders, IsEmpty());
  const auto updates = updates_in(shard.pushed(push_of(1, 0)));
  ASSERT_THAT(updates, SizeIs(1));
  EXPECT_THAT(updates[0].contributions, ElementsAre(push_of(0, 0), push_of(1, 0), push_of(2, 0)));
  EXPECT_EQ(updates[0].version, 1u);
}

TEST(SspPolicy, AnswersTheNextClocksReadsAfterTheUpdate) {
  Shard shard = ssp(0, 2);
  shard.pushed(push_of(1, 0));
  EXPECT_THAT(shard.read({Rank{1}, 1}).orders, IsEmpty());
  const HostedActions actions = shard.pushed(push_of(0, 0));
  ASSERT_THAT(actions.orders, SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<ApplyUpdate>(actions.orders[0]));
  EXPECT_EQ(std::get<AnswerRead>(actions.orders[1]).version, 1u);
  EXPECT_THAT(answered_in(shard.read({Rank{0}, 1})), ElementsAre(0));
}

TEST(SspPolicy, HoldsAReadThatIsMoreThanTheStalenessAhead) {
  Shard shard = ssp(2, 2);
  for (std::uint64_t clock = 0; clock < 3; ++clock) shard.pushed(push_of(0, clock, clock));
  EXPECT_THAT(answered_in(shard.read({Rank{0}, 2})), ElementsAre(0));
  EXPECT_THAT(answered_in(shard.read({Rank{0}, 3})), IsEmpty());
  EXPECT_THAT(answered_in(shard.pushed(push_of(1, 0))), ElementsAre(0));
}

TEST(SspPolicy, NobodyWaitsForAWorkerThatLeft) {
  Shard shard = ssp(0, 3);
  shard.pushed(push_of(0, 0));
  shard.pushed(push_of(2, 0));
  shard.read({Rank{0}, 1});
  const HostedActions actions = shard.left(Rank{1});
  ASSERT_THAT(updates_in(actions), SizeIs(1));
  EXPECT_THAT(updates_in(actions)[0].contributions, SizeIs(2));
  EXPECT_THAT(answered_in(actions), ElementsAre(0));
}

TEST(SspPolicy, AppliesWhatAWorkerPushedBeforeItLeft) {
  Shard shard = ssp(0, 2);
  shard.pushed(push_of(1, 0));
  EXPECT_THAT(shard.left(Rank{1}).orders, IsEmpty());
  EXPECT_THAT(updates_in(shard.pushed(push_of(0, 0))).at(0).contributions, ElementsAre(push_of(0, 0), push_of(1, 0)));
}

TEST(SspPolicy, AJoinerStartsAtTheSmallestClock) {
  Shard shard = ssp(3, 2);
  for (std::uint64_t clock = 0; clock < 3; ++clock) shard.pushed(push_of(0, clock));
  shard.pushed(push_of(1, 0));
  shard.joined(Rank{2});
  EXPECT_EQ(shard.progress().committed(Rank{2}), 1u);
  EXPECT_EQ(shard.pushed({Rank{2}, 1, 0, 0}).refused, Refusal::wrong_clock);
  EXPECT_EQ(shard.pushed({Rank{2}, 1, 1, 0}).refused, Refusal::none);
}

TEST(SspPolicy, AWorkerThatComesBackContributesToTheClockItLeftIn) {
  Shard shard = ssp(0, 2);
  shard.pushed(push_of(1, 0));
  shard.left(Rank{1});
  shard.joined(Rank{1});
  EXPECT_THAT(updates_in(shard.pushed(push_of(0, 0))), IsEmpty()) << "rank 1 is one of the workers again";
  const auto updates = updates_in(shard.pushed({Rank{1}, 2, 0, 0}));
  ASSERT_THAT(updates, SizeIs(1));
  EXPECT_THAT(updates[0].contributions, SizeIs(3));
  EXPECT_EQ(shard.progress().smallest_clock(), 1u);
}

TEST(HostedPolicies, RefuseWhatIsNotTheNextOfItsWorker) {
  Shard shard{{.kind = PolicyKind::async}, 1};
  EXPECT_EQ(shard.pushed(push_of(0, 1)).refused, Refusal::out_of_order);
  EXPECT_EQ(shard.pushed(push_of(0, 0)).refused, Refusal::none);
  EXPECT_EQ(shard.pushed(push_of(0, 0)).refused, Refusal::duplicate);
  EXPECT_EQ(shard.pushed(push_of(1, 0)).refused, Refusal::stranger);
  EXPECT_EQ(shard.pushed({Rank{0}, 2, 5, 0}).refused, Refusal::wrong_clock);
  EXPECT_EQ(shard.read({Rank{0}, 2}).refused, Refusal::wrong_clock);
  EXPECT_EQ(shard.progress().version(), 1u) << "only one was applied";
}

TEST(AsyncPolicy, RampsTheRateOfEachWorkerByItsOwnClock) {
  Shard shard{{.kind = PolicyKind::async, .ramp_from = 0.2, .ramp_by = 0.2, .ramp_every = 3}, 2};
  const auto scale = [&](std::uint32_t worker, std::uint64_t clock) {
    return updates_in(shard.pushed(push_of(worker, clock))).at(0).rate_scale;
  };
  for (std::uint64_t clock = 0; clock < 20; ++clock)
    EXPECT_DOUBLE_EQ(scale(0, clock), std::min(1.0, 0.2 * static_cast<double>(1 + clock / 3))) << clock;
  EXPECT_DOUBLE_EQ(scale(1, 0), 0.2);
}

TEST(AsyncPolicy, DividesByTheUpdatesThatCameBetween) {
  Shard shard{{.kind = PolicyKind::async, .divide_by_staleness = true}, 2};
  shard.pushed(push_of(0, 0));
  shard.pushed(push_of(0, 1, 1));
  EXPECT_DOUBLE_EQ(updates_in(shard.pushed(push_of(1, 0, 0))).at(0).rate_scale, 1.0 / 3);
  EXPECT_EQ(shard.progress().histogram().counts[2], 1u);
  EXPECT_EQ(shard.progress().histogram().largest, 2u);
}

TEST(AsyncPolicy, RefusesARampThatNeverStarts) {
  EXPECT_THAT(message_of([] { make_plain_hosted_policy({.kind = PolicyKind::async, .ramp_from = 0}, 2); }),
              HasSubstr("update.ramp_from = 0 is out of its range"));
}

TEST(EasgdPolicy, RefusesAnUnstablePull) {
  const auto host = [](double elasticity) {
    make_plain_hosted_policy({.kind = PolicyKind::easgd, .elasticity = elasticity}, 4);
  };
  EXPECT_THAT(message_of([&] { host(0.3); }), HasSubstr("give at most 0.25"));
  EXPECT_NO_THROW(host(0.25));
  EXPECT_DOUBLE_EQ(elastic_alpha({.kind = PolicyKind::easgd}, 4).value(), 0.225);
  EXPECT_FALSE(elastic_alpha({.kind = PolicyKind::async}, 4).has_value());
}

TEST(EasgdPolicy, RefusesMoreWorkersThanItsPullIsStableFor) {
  Shard shard{{.kind = PolicyKind::easgd}, 2};
  EXPECT_THAT(message_of([&] { shard.joined(Rank{2}); }), HasSubstr("one worker more"));
}

TEST(EasgdPolicy, AnswersWithTheCenterBeforeThePush) {
  Shard shard{{.kind = PolicyKind::easgd}, 2};
  const HostedActions actions = shard.pushed(push_of(1, 0));
  ASSERT_THAT(actions.orders, SizeIs(2));
  EXPECT_EQ(std::get<AnswerRead>(actions.orders[0]).version, 0u);
  EXPECT_EQ(std::get<AnswerRead>(actions.orders[0]).clock, 1u);
  EXPECT_EQ(std::get<ApplyUpdate>(actions.orders[1]).version, 1u);
}

TEST(EasgdPolicy, PullsAsTheRuleOfAStream) {
  const RuleStep pull = elastic_pull(0.25);
  float p = 3, none = 0;
  update_element<RuleKind::sgd>(pull, 1, -1, p, none, none);
  EXPECT_EQ(p, 3 - 0.25F * (3 - -1));
}

TEST(HostedWorker, SaysThatAPullMixesVersions) {
  HostedWorker worker{Rank{0}, 2};
  worker.begin();
  EXPECT_FALSE(worker.answered(0, {Rank{0}, 0, 4, 77}));
  EXPECT_THAT(worker.missing(), ElementsAre(1));
  EXPECT_TRUE(worker.answered(1, {Rank{0}, 0, 4, 78}));
  EXPECT_FALSE(worker.pulled().one_version);
  const auto round = worker.contribute();
  EXPECT_EQ(round.pushes[0].base_version, 4u);
  EXPECT_EQ(round.read.clock, 1u);
  EXPECT_FALSE(worker.answered(0, {Rank{0}, 1, 5, 80}));
  EXPECT_FALSE(worker.answered(0, {Rank{0}, 1, 6, 81})) << "an answer that comes twice";
  EXPECT_TRUE(worker.answered(1, {Rank{0}, 1, 7, 80}));
  EXPECT_TRUE(worker.pulled().one_version);
  EXPECT_THAT(worker.pulled().versions, ElementsAre(5, 7));
}

TEST(HostedWorker, ContributesNothingBeforeAllShardsAnswered) {
  HostedWorker worker{Rank{3}, 2};
  EXPECT_THAT(message_of([&] { worker.contribute(); }), HasSubstr("2 shards have not answered"));
  worker.begin();
  worker.answered(1, {Rank{3}, 0, 0, 0});
  EXPECT_THAT(message_of([&] { worker.contribute(); }), HasSubstr("1 shards have not answered"));
}

TEST(StalenessHistogram, AddsUpOverShards) {
  StalenessHistogram a, b;
  a.add(0);
  a.add(3);
  b.add(1000);
  a.add(b);
  EXPECT_EQ(a.updates, 3u);
  EXPECT_EQ(a.counts[3], 1u);
  EXPECT_EQ(a.counts[63], 1u);
  EXPECT_EQ(a.largest, 1000u);
  EXPECT_DOUBLE_EQ(a.mean(), 1003.0 / 3);
}

// ---- seeded runs on a network that delays, reorders and duplicates --------------------------------------------------

using test::HostedSimulation;
using test::Parts;
using test::SimulationOptions;

struct SeededRun {
  SimulationOptions options;
  std::optional<std::uint32_t> staleness;  // ssp
  PolicySettings policy;
};

/// A run of 2 to 5 workers and 1 to 3 shards, every third with a worker that leaves in the middle.
SeededRun random_run(std::uint64_t seed) {
  std::mt19937_64 random{seed * 977 + 5};
  SeededRun run;
  SimulationOptions& o = run.options;
  o.seed = seed;
  o.workers = 2 + static_cast<std::uint32_t>(random() % 4);
  o.shards = 1 + static_cast<std::uint32_t>(random() % 3);
  o.clocks = 6 + random() % 12;
  if (random() % 2 == 0) o.meet_every = 1 + random() % 5;
  if (random() % 3 == 0) o.leaver = static_cast<std::uint32_t>(random() % o.workers);
  const std::uint64_t kind = random() % 6;
  if (kind == 0) {
    run.policy = {.kind = PolicyKind::async,
                  .divide_by_staleness = random() % 2 == 0,
                  .ramp_from = 0.25,
                  .ramp_by = 0.25,
                  .ramp_every = 3};
  } else if (kind == 1) {
    run.policy = {.kind = PolicyKind::easgd};
    o.elastic = true;
    o.alpha = static_cast<float>(elastic_alpha(run.policy, o.workers).value());
  } else {
    run.staleness = kind == 2 ? 0 : static_cast<std::uint32_t>(random() % 5);
    run.policy = {.kind = PolicyKind::ssp, .staleness = *run.staleness};
    run.policy.divide_by_staleness = *run.staleness > 0 && random() % 2 == 0;
  }
  o.policy = [settings = run.policy, workers = o.workers] { return make_plain_hosted_policy(settings, workers); };
  return run;
}

/// By the log alone: does the shard hold every contribution that a read at this clock may not miss?
void expect_bound(const SeededRun& run, const HostedSimulation& simulation, std::uint32_t shard,
                  const AnswerRead& answer) {
  std::vector<std::uint64_t> applied(run.options.workers);
  for (const AppliedRecord& record : simulation.shards[shard].log) {
    ASSERT_EQ(record.clock, applied[record.worker]) << "rank " << record.worker << " is applied out of order";
    ++applied[record.worker];
  }
  for (std::uint32_t w = 0; w < run.options.workers; ++w) {
    const std::uint64_t may_miss = w == answer.worker.value ? 0 : *run.staleness;
    const std::uint64_t needed = answer.clock - std::min(answer.clock, may_miss);
    ASSERT_GE(applied[w], std::min(needed, simulation.contributions_of(w)))
        << "rank " << answer.worker.value << " reads at clock " << answer.clock << " what lacks rank " << w;
  }
}

void expect_each_once(const HostedSimulation& simulation, std::uint32_t workers) {
  for (const test::SimulatedShard& shard : simulation.shards) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (const AppliedRecord& record : shard.log)
      ASSERT_TRUE(seen.emplace(record.worker, record.clock).second) << "applied twice";
    std::uint64_t all = 0;
    for (std::uint32_t w = 0; w < workers; ++w) all += simulation.contributions_of(w);
    ASSERT_EQ(seen.size(), all) << "a contribution is lost";
    ASSERT_EQ(shard.policy->progress().histogram().updates, all);
  }
}

/// Goes through the shards' logs, and computes everything again from the start, knowing nothing else of the run.
class Replay {
 public:
  Replay(const SeededRun& run, const std::vector<test::SimulatedShard>& shards) : run_(run) {
    for (std::uint32_t s = 0; s < shards.size(); ++s) {
      logs_.push_back(shards[s].log);
      history_.push_back({test::simulated_start(s)});
      for (const AppliedRecord& r : shards[s].log) bases_[{r.worker, r.clock}].resize(shards.size(), 0);
      for (const AppliedRecord& r : shards[s].log) bases_[{r.worker, r.clock}][s] = r.base;
    }
    mine_.resize(run.options.workers);
    for (Parts& parts : mine_)
      for (std::uint32_t s = 0; s < shards.size(); ++s) parts.push_back(test::simulated_start(s));
    computed_.resize(run.options.workers, 0);
    next_.resize(shards.size(), 0);
  }

  /// False when the logs contradict each other.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t w = 0; w < mine_.size(); ++w) moved |= compute(w);
      for (std::uint32_t s = 0; s < logs_.size(); ++s) moved |= apply(s);
    }
    for (std::size_t s = 0; s < logs_.size(); ++s)
      if (next_[s] != logs_[s].size()) return false;
    return true;
  }
  const std::vector<float>& parameters(std::size_t shard) const { return history_[shard].back(); }

 private:
  /// The worker's next contribution, once all that it read is there.
  bool compute(std::uint32_t worker) {
    const std::uint64_t clock = computed_[worker];
    const auto base = bases_.find({worker, static_cast<std::uint32_t>(clock)});
    if (base == bases_.end()) return false;
    Parts read;
    for (std::size_t s = 0; s < history_.size(); ++s) {
      if (history_[s].size() <= base->second[s]) return false;
      read.push_back(history_[s][base->second[s]]);
    }
    test::simulated_pull(mine_[worker], read, clock, run_.options);
    contributions_[{worker, clock}] = test::simulated_contribution(mine_[worker], worker, clock, run_.options);
    ++computed_[worker];
    return true;
  }
  bool apply(std::uint32_t s) {
    const UpdateLog& log = logs_[s];
    if (next_[s] == log.size()) return false;
    std::size_t end = next_[s];
    std::vector<const std::vector<float>*> parts;
    for (; end < log.size() && log[end].sequence == log[next_[s]].sequence; ++end) {
      const auto found = contributions_.find({log[end].worker, log[end].clock});
      if (found == contributions_.end()) return false;
      parts.push_back(&found->second[s]);
    }
    const AppliedRecord& r = log[next_[s]];
    const PolicySettings& settings = run_.policy;
    double scale =
        std::min(1.0, settings.ramp_from + settings.ramp_by * static_cast<double>(r.clock / settings.ramp_every));
    if (settings.divide_by_staleness) scale /= static_cast<double>(r.sequence - r.base);
    std::vector<float> parameters = history_[s].back();
    test::simulated_update(parameters, parts, scale, run_.options);
    history_[s].push_back(std::move(parameters));
    next_[s] = end;
    return true;
  }

  const SeededRun& run_;
  std::vector<UpdateLog> logs_;
  std::vector<Parts> history_;  // by shard, by version
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint64_t>> bases_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Parts> contributions_;
  std::vector<Parts> mine_;
  std::vector<std::uint64_t> computed_;
  std::vector<std::size_t> next_;
};

/// The synchronous run: clock by clock, all workers that still take part.
Parts synchronous_run(const SeededRun& run, const HostedSimulation& simulation) {
  Parts parameters;
  for (std::uint32_t s = 0; s < run.options.shards; ++s) parameters.push_back(test::simulated_start(s));
  for (std::uint64_t clock = 0; clock < run.options.clocks; ++clock) {
    std::vector<Parts> all;
    for (std::uint32_t w = 0; w < run.options.workers; ++w)
      if (clock < simulation.contributions_of(w)) all.push_back(test::simulated_gradients(w, clock, parameters));
    for (std::uint32_t s = 0; s < run.options.shards; ++s) {
      std::vector<const std::vector<float>*> parts;
      for (const Parts& one : all) parts.push_back(&one[s]);
      test::simulated_update(parameters[s], parts, 1, run.options);
    }
  }
  return parameters;
}

/// All workers at a barrier have read the same, and their own shards waited for them.
void expect_meetings(const SeededRun& run, const HostedSimulation& simulation) {
  for (std::size_t m = 0; m < simulation.met.size(); ++m)
    for (const Parts& read : simulation.met[m]) ASSERT_EQ(read, simulation.met[m][0]) << "meeting " << m + 1;
  ASSERT_EQ(simulation.moved_after_meeting, 0u);
  const std::uint64_t every = run.options.meet_every;
  ASSERT_EQ(simulation.met.size(), every == 0 ? 0 : run.options.clocks / every);
}

/// The shards' logs, followed while messages take other times, lead to the same updates and the same bits.
void expect_the_same_on_another_network(const SeededRun& run, const HostedSimulation& first) {
  SimulationOptions options = run.options;
  options.seed += 1'000'000;
  for (const test::SimulatedShard& shard : first.shards) options.replay.push_back(shard.log);
  HostedSimulation again{options};
  ASSERT_TRUE(again.run()) << "somebody waits for ever in the replay";
  for (std::size_t s = 0; s < first.shards.size(); ++s) {
    ASSERT_EQ(again.shards[s].log, first.shards[s].log) << "shard " << s;
    ASSERT_EQ(again.shards[s].parameters, first.shards[s].parameters) << "shard " << s;
  }
}

TEST(HostedPolicies, GoOnAsTheyDecideBehindTheEndOfALog) {
  SimulationOptions options{.seed = 5, .clocks = 6};
  options.policy = [] { return make_plain_hosted_policy({.kind = PolicyKind::async}, 3); };
  HostedSimulation first{options};
  ASSERT_TRUE(first.run());
  options.seed = 6;
  for (const test::SimulatedShard& shard : first.shards)
    options.replay.emplace_back(shard.log.begin(), shard.log.begin() + 7);
  HostedSimulation again{options};
  ASSERT_TRUE(again.run());
  for (std::size_t s = 0; s < first.shards.size(); ++s) {
    ASSERT_EQ(again.shards[s].log.size(), first.shards[s].log.size());
    EXPECT_TRUE(std::equal(options.replay[s].begin(), options.replay[s].end(), again.shards[s].log.begin()));
  }
}

TEST(HostedPolicies, KeepTheirPromisesIn500SeededRuns) {
  std::uint64_t stale = 0, mixed = 0;
  for (std::uint64_t seed = 0; seed < 500 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(text("seed ", seed));
    const SeededRun run = random_run(seed);
    HostedSimulation simulation{run.options};
    if (run.staleness) {
      simulation.on_answer = [&](std::uint32_t s, const AnswerRead& answer) {
        expect_bound(run, simulation, s, answer);
      };
    }
    ASSERT_TRUE(simulation.run()) << "somebody waits for ever";
    expect_each_once(simulation, run.options.workers);
    expect_meetings(run, simulation);
    Replay replay{run, simulation.shards};
    ASSERT_TRUE(replay.run());
    for (std::size_t s = 0; s < simulation.shards.size(); ++s) {
      ASSERT_EQ(replay.parameters(s), simulation.shards[s].parameters);
      const HostedPolicy& policy = *simulation.shards[s].policy;
      stale = std::max(stale, policy.progress().histogram().largest);
      if (run.staleness) {
        ASSERT_LE(policy.staleness().largest, *run.staleness);
      }
    }
    mixed += simulation.mixed_pulls;
    if (run.options.leaver >= run.options.workers) expect_the_same_on_another_network(run, simulation);
    if (run.staleness == 0) {
      const Parts synchronous = synchronous_run(run, simulation);
      for (std::size_t s = 0; s < synchronous.size(); ++s) ASSERT_EQ(simulation.shards[s].parameters, synchronous[s]);
      ASSERT_EQ(simulation.mixed_pulls, 0u);
    }
  }
  EXPECT_GT(stale, 3u) << "the network hardly delayed anything";
  EXPECT_GT(mixed, 0u);
}

}  // namespace
}  // namespace troupe
