// What each policy that exchanges in rounds does to the weights, step by step, against plain loops over arrays: bit by
// bit, over each communicator, with samples that some ranks lack in some steps.

#include <gtest/gtest.h>

#include "tests/contracts/exchange_contract.hpp"
#include "tests/transports/communicator_worlds.hpp"
#include "tests/transports/loopback_ends.hpp"

namespace troupe::contracts {
namespace {

using Floats = std::vector<float>;

/// One replica's or one shard's numbers, and one element's arithmetic on them.
struct Numbers {
  Floats p, s0, s1;
  explicit Numbers(const Floats& start) : p(start), s0(start.size()), s1(start.size()) {}
  void apply(const RuleStep& rule, const Floats& sum, std::uint64_t samples) {
    if (samples == 0) return;
    const auto scale = static_cast<float>(1.0 / static_cast<double>(samples));
    for (std::size_t i = 0; i < p.size(); ++i) {
      switch (rule.kind) {
        case RuleKind::sgd: update_element<RuleKind::sgd>(rule, scale, sum[i], p[i], s0[i], s1[i]); break;
        case RuleKind::momentum: update_element<RuleKind::momentum>(rule, scale, sum[i], p[i], s0[i], s1[i]); break;
        case RuleKind::nesterov: update_element<RuleKind::nesterov>(rule, scale, sum[i], p[i], s0[i], s1[i]); break;
        case RuleKind::block: update_element<RuleKind::block>(rule, scale, sum[i], p[i], s0[i], s1[i]); break;
        default: update_element<RuleKind::adam>(rule, scale, sum[i], p[i], s0[i], s1[i]); break;
      }
    }
  }
};

Floats added(const std::vector<Floats>& parts) {
  Floats sum = parts[0];
  for (std::size_t r = 1; r < parts.size(); ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[r][i];
  return sum;
}

/// The steps of a run, of which some want consistent weights and one is the last.
struct Script {
  GroupSpec spec;
  std::vector<PolicyPhase> phases;
  std::uint64_t steps = 0;
  std::uint64_t rows = 30;                  // of all ranks and a step, as the policies are told
  std::vector<PolicyPhase> told;            // while the run is under way, just before the step before they begin
  std::vector<std::vector<Rank>> relieved;  // by step; none given: nobody
  bool consistent(std::uint64_t step) const { return step % 5 == 3; }
  StepFacts facts(std::uint64_t step) const {
    const bool some = step < relieved.size();
    return {.step = Step{step},
            .samples_before = step * rows,
            .samples = rows,
            .last = step + 1 == steps,
            .consistent = consistent(step),
            .relieved = some ? relieved[step] : kNobody};
  }
  /// In every step other ranks rest, in some nobody does; one always works.
  void relieve(std::uint64_t seed) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      std::vector<Rank>& resting = relieved.emplace_back();
      for (std::uint32_t r = 0; r < spec.ranks; ++r)
        if (resting.size() + 1 < spec.ranks && random_below(seed, step * spec.ranks + r, 2) == 0)
          resting.push_back({r});
    }
  }
  inline static const std::vector<Rank> kNobody{};
};

/// What every rank sees: its weights when a step begins, and the sums that became known with it.
struct Seen {
  std::vector<std::vector<Floats>> weights;  // [step][rank]; one more at the end
  std::vector<StepSums> totals;              // [step]
};

/// The policies' definitions as loops, after training.md's sources, without the engine's state machines.
class PlainRun {
 public:
  explicit PlainRun(const Script& script)
      : script_(script), settings_(resolved(script.phases[0].policy, script.spec.ranks)) {
    const Floats start = SerialRun{script.spec}.parameters;
    common_.emplace(start);
    outer_.emplace(start);
    for (std::uint32_t r = 0; r < script.spec.ranks; ++r) ranks_.emplace_back(start);
  }

  Seen run() {
    for (std::uint64_t step = 0; step < script_.steps; ++step) {
      note();
      known_ = {};
      const bool warm = step * script_.rows < settings_.distributed_after;
      if (settings_.kind == PolicyKind::sync) {
        accumulate(step);
      } else if (warm) {
        synchronous({step});
      } else if (settings_.kind == PolicyKind::double_buffered) {
        delayed(step);
      } else {
        local(step);
      }
      seen_.totals.push_back(known_);
    }
    note();
    return seen_;
  }

 private:
  void note() {
    seen_.weights.emplace_back();
    for (const Numbers& rank : ranks_) seen_.weights.back().push_back(rank.p);
  }
  Floats gradients(std::uint32_t r, std::uint64_t step) const { return SerialRun::gradients(script_.spec, r, step); }

  /// One update with the gradients of some steps.
  void synchronous(const std::vector<std::uint64_t>& steps) {
    std::vector<Floats> parts;
    StepSums total;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      std::vector<Floats> own;
      StepSums sums;
      for (const std::uint64_t step : steps) {
        own.push_back(gradients(r, step));
        sums.add(SerialRun::sums(script_.spec, r, step));
      }
      parts.push_back(added(own));
      total.add(sums);
    }
    common_->apply(rule_step(script_.spec.rule, ++updates_), added(parts), total.samples);
    for (Numbers& rank : ranks_) rank.p = common_->p;
    known_.add(total);
  }

  void accumulate(std::uint64_t step) {
    waiting_.push_back(step);
    if (waiting_.size() < settings_.accumulate && step + 1 != script_.steps) return;
    synchronous(waiting_);
    waiting_.clear();
  }

  /// Akiba 2017: the weights of step t + 1 are those of step t after the mean gradient of step t - 1.
  void delayed(std::uint64_t step) {
    if (!waiting_.empty()) synchronous(waiting_);
    waiting_ = {step};
    if (!script_.consistent(step) && step + 1 != script_.steps) return;
    synchronous(waiting_);
    waiting_.clear();
  }

  void local(std::uint64_t step) {
    if (!working_) {  // every rank goes on from the same state
      for (Numbers& rank : ranks_) rank = *common_;
      block_sums_.assign(ranks_.size(), {});
      idle_.assign(ranks_.size(), 0);
      working_ = true;
    }
    ++updates_;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      const StepSums sums = SerialRun::sums(script_.spec, r, step);
      if (sums.samples == 0) ++idle_[r];  // no update of this rank
      const std::uint64_t update = std::max<std::uint64_t>(updates_ - idle_[r], 1);
      ranks_[r].apply(rule_step(script_.spec.rule, update), gradients(r, step), sums.samples);
      block_sums_[r].add(sums);
    }
    block_ += script_.rows;
    ++block_steps_;
    const bool full =
        settings_.every_steps != 0 ? block_steps_ == settings_.every_steps : block_ >= settings_.block_samples;
    if (full || step + 1 == script_.steps) end_block();
  }

  void end_block() {
    std::vector<Floats> deltas;
    StepSums total;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      Floats& delta = deltas.emplace_back(outer_->p.size());
      const auto samples = static_cast<float>(block_sums_[r].samples);
      for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = samples * (common_->p[i] - ranks_[r].p[i]);
      total.add(block_sums_[r]);
      block_sums_[r] = {};
    }
    outer_->p = common_->p;
    outer_->apply(outer_rule(), added(deltas), total.samples);
    common_->p = outer_->p;
    for (Numbers& rank : ranks_) {
      rank.p = common_->p;
      if (settings_.kind != PolicyKind::block_momentum || !settings_.reset_momentum) continue;
      std::fill(rank.s0.begin(), rank.s0.end(), 0.0F);
      std::fill(rank.s1.begin(), rank.s1.end(), 0.0F);
      updates_ = 0;
      idle_.assign(ranks_.size(), 0);
    }
    known_ = total;
    block_ = block_steps_ = 0;
  }

  RuleStep outer_rule() const {
    const bool outer = settings_.kind == PolicyKind::block_momentum || settings_.kind == PolicyKind::diloco;
    if (!outer) return rule_step({.kind = RuleKind::sgd, .rate = 1}, 1);
    return rule_step({.kind = settings_.nesterov ? RuleKind::nesterov : RuleKind::momentum,
                      .rate = settings_.outer_rate,
                      .momentum = settings_.outer_momentum},
                     1);
  }

  const Script script_;
  const PolicySettings settings_;
  std::optional<Numbers> common_, outer_;
  std::vector<Numbers> ranks_;
  std::vector<std::uint64_t> waiting_;
  std::vector<StepSums> block_sums_;
  std::vector<std::uint64_t> idle_;  // by rank: updates without samples
  std::uint64_t updates_ = 0, block_ = 0, block_steps_ = 0;
  bool working_ = false;
  StepSums known_;
  Seen seen_;
};

/// The same run with the real exchange of every rank.
class ExchangedRun {
 public:
  ExchangedRun(const Script& script, const CommunicatorCase& how) : script_(script), group_(script.spec, how) {
    for (std::uint32_t r = 0; r < script.spec.ranks; ++r) memory_.push_back(memory_of(r));
    for (std::uint32_t r = 0; r < script.spec.ranks; ++r) make(r);
  }

  std::optional<Seen> run() {
    for (std::uint64_t step = 0; step < script_.steps; ++step)
      for (std::uint32_t r = 0; r < script_.spec.ranks; ++r) enqueue(r, step);
    for (std::uint32_t r = 0; r < script_.spec.ranks; ++r) note(r);
    if (!group_.finish()) return {};
    Seen seen;
    for (std::uint64_t step = 0; step <= script_.steps; ++step) {
      seen.weights.emplace_back();
      for (std::uint32_t r = 0; r < script_.spec.ranks; ++r) {
        const RankView& view = group_.world->rank(r);
        seen.weights.back().push_back(WorkingGroup::get<float>(view, sights_[r][step]));
      }
    }
    for (const Memory& total : totals_)
      seen.totals.push_back(WorkingGroup::get<StepSums>(group_.world->rank(0), total)[0]);
    return seen;
  }
  Exchange& exchange(std::uint32_t r) { return *exchanges_[r]; }
  std::vector<std::uint16_t> half() {
    return WorkingGroup::get<std::uint16_t>(group_.world->rank(0), group_.world->rank(0).half);
  }

 private:
  ExchangeMemory memory_of(std::uint32_t r) {
    const GroupSpec& spec = script_.spec;
    RankView& view = group_.world->rank(r);
    const std::uint64_t bytes = spec.elements * sizeof(float);
    const PolicyNeeds needs = needs_of(script_.phases);
    ExchangeMemory memory{.gradients = view.gradients, .mine = {view.mine}};
    memory.held = slice(view.contributions, bytes, bytes);
    memory.carry = view.arena->allocate(sizeof(StepSums));
    memory.round_total = view.arena->allocate(sizeof(StepSums));
    if (needs.own_weights) {
      memory.weights = view.arena->allocate(bytes);
      memory.common = view.parameters;
    }
    for (std::size_t s = 0; needs.whole_state && s < state_slots(spec.rule.kind); ++s) {
      memory.state[s] = view.arena->allocate(bytes);
      const Stripe& mine = spec.stripes[r];
      memory.mine[0].state[s] = slice(memory.state[s], mine.first * sizeof(float), mine.count * sizeof(float));
    }
    StripeMemory& outer = memory.outer.emplace_back(view.mine);
    outer.state[0] = view.arena->allocate(std::max<std::uint64_t>(64, spec.stripes[r].count * sizeof(float)));
    outer.state[0].size_bytes = spec.stripes[r].count * sizeof(float);
    outer.journal = view.arena->allocate(spec.buckets.size() * journal_bytes(kMaxOuterSlots));
    weights_.push_back(needs.own_weights ? memory.weights : view.parameters);
    return memory;
  }

  void make(std::uint32_t r) {
    const GroupSpec& spec = script_.spec;
    RankView& view = group_.world->rank(r);
    ExchangeMemory memory = memory_[r];
    if (dynamic_cast<ArenaWorld*>(group_.world.get()) != nullptr) {
      for (const ExchangeMemory& theirs : memory_) memory.stripes.push_back(theirs.mine[0]);
      memory.relief_journal =
          view.arena->allocate(relief_journal_bytes(spec.stripes, spec.buckets, state_slots(spec.rule.kind)));
    }
    exchanges_.push_back(make_policy_exchange({.communicator = view.communicator,
                                               .rule = spec.rule,
                                               .policy = std::make_unique<PolicySequence>(script_.phases, spec.ranks),
                                               .buckets = spec.buckets,
                                               .memory = memory,
                                               .side = view.side}));
    sights_.emplace_back();
  }

  void note(std::uint32_t r) {
    RankView& view = group_.world->rank(r);
    sights_[r].push_back(view.arena->allocate(weights_[r].size_bytes));
    view.stream->copy(sights_[r].back(), weights_[r]);
  }

  void enqueue(std::uint32_t r, std::uint64_t step) {
    RankView& view = group_.world->rank(r);
    const BucketWork work = group_.work_of(r, step, script_.spec.buckets[0]);
    if (step >= StepExchange::kStepsKept) {  // as a step's end is awaited before its slot is used again
      ASSERT_TRUE(r != 0 || group_.finish());
    }
    *view.space->address_of<StepSums>(work.total) = {};
    for (const PolicyPhase& phase : script_.told)
      if (phase.from_step == step + 1) exchanges_[r]->switch_at(Step{phase.from_step}, phase.policy);
    StepFacts facts = script_.facts(step);
    facts.idle = SerialRun::sums(script_.spec, r, step).samples == 0;
    exchanges_[r]->begin(*view.stream, facts, work.sums, work.total);
    note(r);
    const Memory found = WorkingGroup::put(view, SerialRun::gradients(script_.spec, r, step));
    for (const Bucket& bucket : script_.spec.buckets) {
      exchanges_[r]->acquire(*view.stream, bucket);
      group_.enqueue_gradients(r, step, bucket, found);
      exchanges_[r]->contribute(*view.stream, bucket);
    }
    exchanges_[r]->commit(*view.stream);
    exchanges_[r]->join(*view.stream);
    if (r != 0) return;
    totals_.push_back(view.arena->allocate(sizeof(StepSums)));
    view.stream->copy(totals_.back(), work.total);
  }

  const Script script_;
  WorkingGroup group_;
  std::vector<ExchangeMemory> memory_;
  std::vector<Memory> weights_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::vector<std::vector<Memory>> sights_;  // [rank][step]
  std::vector<Memory> totals_;               // of rank 0
};

std::vector<CommunicatorCase> communicators() {
  const auto arena = [](MakeDevice device) {
    return [=](const GroupSpec& spec) { return std::make_unique<ArenaWorld>(spec, device); };
  };
  const auto direct = [](MakeDevice device) {
    return [=](const GroupSpec& spec) {
      return std::make_unique<DirectWorld>(spec, device, std::make_unique<LoopbackEnds>());
    };
  };
  return {{"ArenaFake", arena(fake_devices(7))},
          {"ArenaThreads", arena(reference_devices())},
          {"DirectFake", direct(fake_devices(8))},
          {"DirectThreads", direct(reference_devices())}};
}

class PolicyExchange : public ::testing::TestWithParam<CommunicatorCase> {
 protected:
  static void expect_plain(PolicySettings policy, std::uint64_t first_seed, std::uint64_t steps = 7) {
    for (std::uint64_t seed = first_seed; seed < first_seed + 6 && !HasFatalFailure(); ++seed) {
      Script script{.spec = random_group(1 + seed % 3, seed), .phases = {{.policy = policy}}, .steps = steps};
      script.spec.half = false;
      if (seed % 2 == 0) script.relieve(seed);
      SCOPED_TRACE(text(to_string(policy), ", ", script.spec.ranks, " ranks, seed ", seed));
      const Seen plain = PlainRun{script}.run();
      const auto seen = ExchangedRun{script, GetParam()}.run();
      ASSERT_TRUE(seen);
      for (std::uint64_t step = 0; step <= steps; ++step)
        for (std::uint32_t r = 0; r < script.spec.ranks; ++r)
          ASSERT_EQ(seen->weights[step][r], plain.weights[step][r]) << "before step " << step << ", rank " << r;
      for (std::uint64_t step = 0; step < steps; ++step) {
        ASSERT_EQ(seen->totals[step].samples, plain.totals[step].samples) << "step " << step;
        ASSERT_NEAR(seen->totals[step].loss, plain.totals[step].loss, 1e-9) << "step " << step;
      }
    }
  }
};

TEST_P(PolicyExchange, OfSyncIsOnePlainOptimizer) { expect_plain({}, 100); }
TEST_P(PolicyExchange, OfRelievedRanksKeepsTheirWordInAVerdictAndTheHalfImage) {
  for (std::uint64_t seed = 190; seed < 196; ++seed) {
    Script script{.spec = random_group(2 + seed % 3, seed), .phases = {{.policy = {}}}, .steps = 7};
    script.spec.half = true;
    script.spec.rule.clip_norm = 0.5;
    ExchangedRun plain{script, GetParam()};
    script.relieve(seed);
    ExchangedRun relieved{script, GetParam()};
    const auto expected = plain.run(), seen = relieved.run();
    ASSERT_TRUE(expected && seen);
    const Floats &left = expected->weights.back()[0], &right = seen->weights.back()[0];
    for (std::size_t i = 0; i < left.size(); ++i)  // the norm's squares are added in another order
      ASSERT_NEAR(left[i], right[i], 1e-5 * std::max(1.0F, std::abs(left[i]))) << "element " << i << ", seed " << seed;
    ASSERT_EQ(relieved.half().size(), right.size());
    for (std::size_t i = 0; i < right.size(); ++i) ASSERT_EQ(relieved.half()[i], to_bf16(right[i])) << "element " << i;
  }
}
TEST_P(PolicyExchange, OfSyncWithAccumulationUpdatesWithTheSumOfSeveralSteps) { expect_plain({.accumulate = 3}, 110); }
TEST_P(PolicyExchange, OfDoubleBufferingIsAHandDelayedOptimizer) {
  expect_plain({.kind = PolicyKind::double_buffered}, 120);
}
TEST_P(PolicyExchange, OfLocalSgdAveragesEveryFewSteps) {
  expect_plain({.kind = PolicyKind::local_sgd, .every_steps = 2}, 130);
}
TEST_P(PolicyExchange, OfPostLocalSgdBeginsWithTheStateOfTheSynchronousSteps) {
  expect_plain({.kind = PolicyKind::post_local_sgd, .distributed_after = 90, .every_steps = 2}, 140);
}
TEST_P(PolicyExchange, OfModelAveragingAveragesByTheSamplesOfABlock) {
  expect_plain({.kind = PolicyKind::model_averaging, .block_samples = 75}, 150);
}
TEST_P(PolicyExchange, OfBlockMomentumFiltersTheAverage) {
  expect_plain({.kind = PolicyKind::block_momentum, .block_samples = 60}, 160);
  expect_plain({.kind = PolicyKind::block_momentum, .block_samples = 60, .nesterov = false, .reset_momentum = false},
               170);
}
TEST_P(PolicyExchange, OfDiLoCoIsAnOuterNesterov) {
  expect_plain({.kind = PolicyKind::diloco, .distributed_after = 30, .every_steps = 3}, 180);
}

/// Two policies, plain SGD, and equal batches at all ranks: the weights agree within the order of summing.
void expect_agreement(const CommunicatorCase& how, const PolicySettings& a, const PolicySettings& b,
                      std::uint32_t ranks) {
  for (std::uint64_t seed = 200; seed < 204; ++seed) {
    Script script{.spec = random_group(ranks, seed), .phases = {{.policy = a}}, .steps = 6};
    script.spec.half = false;
    script.spec.rule = {.kind = RuleKind::sgd, .rate = 0.05};
    const auto one = ExchangedRun{script, how}.run();
    script.phases[0].policy = b;
    const auto other = ExchangedRun{script, how}.run();
    ASSERT_TRUE(one && other);
    const Floats &left = one->weights.back()[0], &right = other->weights.back()[0];
    for (std::size_t i = 0; i < left.size(); ++i) {
      ASSERT_NEAR(left[i], right[i], 1e-4 * std::max(1.0F, std::abs(left[i]))) << "element " << i;
    }
  }
}

TEST_P(PolicyExchange, OfLocalSgdWithARoundInEveryStepIsSync) {
  expect_agreement(GetParam(), {}, {.kind = PolicyKind::local_sgd, .every_steps = 1}, 3);
}
TEST_P(PolicyExchange, OfBlockMomentumWithoutMomentumIsModelAveraging) {
  expect_agreement(GetParam(), {.kind = PolicyKind::model_averaging, .block_samples = 60},
                   {.kind = PolicyKind::block_momentum, .block_samples = 60, .outer_momentum = 0, .outer_rate = 1}, 3);
}
TEST_P(PolicyExchange, OfOneRankIsPlainSgdWhateverAverages) {
  expect_agreement(GetParam(), {}, {.kind = PolicyKind::local_sgd, .every_steps = 3}, 1);
  expect_agreement(GetParam(), {}, {.kind = PolicyKind::model_averaging, .block_samples = 60}, 1);
  expect_agreement(GetParam(), {}, {.kind = PolicyKind::block_momentum, .block_samples = 60}, 1);
}

std::vector<PolicySettings> every_policy() {
  return {{},
          {.accumulate = 3},
          {.kind = PolicyKind::double_buffered},
          {.kind = PolicyKind::local_sgd, .every_steps = 3},
          {.kind = PolicyKind::model_averaging, .block_samples = 75},
          {.kind = PolicyKind::block_momentum, .block_samples = 60},
          {.kind = PolicyKind::block_momentum, .block_samples = 60, .block_rule = BlockRule::cntk},
          {.kind = PolicyKind::diloco, .every_steps = 3}};
}

StepSums all_samples(const Script& script) {
  StepSums all;
  for (std::uint64_t step = 0; step < script.steps; ++step)
    for (std::uint32_t r = 0; r < script.spec.ranks; ++r) all.add(SerialRun::sums(script.spec, r, step));
  return all;
}

/// What must hold whatever the policies: equal weights after the switches and at the end, and every sample counted
/// once.
void expect_equal_replicas(const Script& script, const Seen& seen, const std::vector<std::uint64_t>& steps) {
  for (std::uint32_t r = 1; r < script.spec.ranks; ++r) {
    for (const std::uint64_t step : steps)
      ASSERT_EQ(seen.weights[step][r], seen.weights[step][0]) << "before step " << step << ", rank " << r;
    ASSERT_EQ(seen.weights.back()[r], seen.weights.back()[0]) << "at the end, rank " << r;
  }
  StepSums known;
  for (const StepSums& total : seen.totals) known.add(total);
  ASSERT_EQ(known.samples, all_samples(script).samples);
  ASSERT_NEAR(known.loss, all_samples(script).loss, 1e-9);
}

TEST_P(PolicyExchange, SwitchesBetweenAnyTwoPoliciesWithEqualReplicasAndNoSampleLost) {
  const auto policies = every_policy();
  for (std::size_t a = 0; a < policies.size(); ++a) {
    for (std::size_t b = 0; b < policies.size(); ++b) {
      Script script{.spec = random_group(2 + a % 2, 300 + 8 * a + b), .steps = 11};
      script.spec.half = false;
      // Each way once, and back: by a step, by samples.
      script.phases = {{.policy = policies[a]},
                       {.from_step = 4, .policy = policies[b]},
                       {.from_samples = 8 * script.rows, .policy = policies[a]}};
      SCOPED_TRACE(text(to_string(policies[a]), " and ", to_string(policies[b])));
      const auto seen = ExchangedRun{script, GetParam()}.run();
      ASSERT_TRUE(seen);
      expect_equal_replicas(script, *seen, {4, 8});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PolicyExchange, SwitchesWhenItIsToldTo) {
  for (const PolicySettings& to : every_policy()) {
    Script script{.spec = random_group(3, 400), .steps = 9};
    script.spec.half = false;
    script.phases = {{.policy = {}}, {.from_step = 1000, .policy = to}};  // there is memory for it
    script.told = {{.from_step = 5, .policy = to}};
    SCOPED_TRACE(to_string(to));
    const auto told = ExchangedRun{script, GetParam()}.run();
    script.phases[1].from_step = 5;
    script.told = {};
    const auto planned = ExchangedRun{script, GetParam()}.run();
    ASSERT_TRUE(told && planned);
    ASSERT_EQ(told->weights, planned->weights);
  }
}

TEST_P(PolicyExchange, HasMemoryForAPolicyThatWaitsForAStragglerAndLeavesItToBeTold) {
  Script script{.spec = random_group(3, 402), .steps = 9};
  script.spec.half = false;
  const PolicySettings local{.kind = PolicyKind::local_sgd, .every_steps = 2};
  script.phases = {{.policy = {}}, {.policy = local, .straggler_ratio = 2}};
  script.told = {{.from_step = 5, .policy = local}};
  const auto told = ExchangedRun{script, GetParam()}.run();
  script.phases[1] = {.from_step = 5, .policy = local};
  script.told = {};
  const auto planned = ExchangedRun{script, GetParam()}.run();
  ASSERT_TRUE(told && planned);
  EXPECT_EQ(told->weights, planned->weights);
}

TEST_P(PolicyExchange, RefusesASwitchForWhichItHasNoMemoryOrThatComesTooLate) {
  Script script{.spec = random_group(2, 401), .phases = {{}}, .steps = 3};
  script.spec.half = false;
  ExchangedRun run{script, GetParam()};
  EXPECT_THROW(run.exchange(0).switch_at(Step{2}, {.kind = PolicyKind::local_sgd}), Error);
  ASSERT_TRUE(run.run());
  EXPECT_THROW(run.exchange(0).switch_at(Step{3}, {.accumulate = 2}), Error) << "step 2 was its last, and has begun";
}

INSTANTIATE_TEST_SUITE_P(Rounds, PolicyExchange, ::testing::ValuesIn(communicators()), communicator_name);

}  // namespace
}  // namespace troupe::contracts
