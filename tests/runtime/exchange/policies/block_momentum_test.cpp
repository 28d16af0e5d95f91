// The two forms of block momentum on one number per worker: that of the paper, and that of CNTK, against a simulation
// of CNTK's learner in which four deviations from the paper can be switched on and off by name.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe {
namespace {

/// The behavior of CNTK's BlockMomentumDistributedLearner, some of which is certainly unintended.
struct Quirks {
  bool local_counts = false;       // the momentum follows the worker's own samples of the block, not the agreed ones
  bool empty_block_moves = false;  // a synchronization without samples moves the model by the velocity
  bool keeps_look_ahead = true;    // the next block starts from, and is measured from, Nesterov's look-ahead
  bool restore_forgets_anchor = false;  // a restored job measures its first block from the weights, not from the anchor
};

class CntkSimulation {
 public:
  CntkSimulation(std::size_t workers, double block, Quirks quirks, bool nesterov = true)
      : quirks_(quirks),
        nesterov_(nesterov),
        weights(workers, 0.0),
        anchor(workers, 0.0),
        velocity(workers, 0.0),
        counts(workers, 0.0),
        base_(workers, 0.0) {
    const auto n = static_cast<double>(workers);
    time_constant_ = workers == 1 ? 0 : -block / std::log(1 - 1 / n);
  }
  void train(std::size_t worker, double samples, double moves) {
    counts[worker] += samples;
    weights[worker] += moves;
  }
  void synchronize() {
    const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
    if (all == 0 && !quirks_.empty_block_moves) return;
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) sum += anchor[i] - weights[i];
    const auto n = static_cast<double>(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double count = quirks_.local_counts ? counts[i] * n : all;
      const double momentum = time_constant_ == 0 ? 0 : std::exp(-count / time_constant_);
      velocity[i] = momentum * velocity[i] + (1 - momentum) * sum;
      const double look_ahead = nesterov_ ? momentum * velocity[i] : 0;
      // The base for the velocity of the next round.
      const double base = (quirks_.keeps_look_ahead ? anchor[i] : base_[i]) - velocity[i];
      weights[i] = base - look_ahead;
      anchor[i] = weights[i];
      base_[i] = base;
    }
    std::fill(counts.begin(), counts.end(), 0.0);
  }
  void restore() {
    if (quirks_.restore_forgets_anchor) anchor = weights;
  }

 private:
  const Quirks quirks_;
  const bool nesterov_;
  double time_constant_ = 0;

 public:
  std::vector<double> weights, anchor, velocity, counts;  // by worker

 private:
  std::vector<double> base_;  // by worker: the model without the look-ahead
};

/// The policy's rounds on one number, with equal batches at every worker.
class PolicyRun {
 public:
  PolicyRun(PolicySettings settings, std::uint32_t workers, std::uint64_t batch)
      : policy_(make_round_policy(settings, workers)), workers_(workers), batch_(batch), weights(workers, 0.0F) {}
  void step(const std::vector<double>& moves) {
    const std::uint64_t samples = workers_ * batch_;
    const StepActions actions =
        policy_->next({.step = Step{steps_}, .samples_before = steps_ * samples, .samples = samples});
    ++steps_;
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += static_cast<float>(moves[i]);
    if (actions.sent == Sent::nothing) return;
    float sum = 0;
    for (const float weight : weights) sum += anchor - weight;
    const RuleStep rule = rule_step(actions.outer, 1);
    float none = 0;
    const float scale = 1.0F / static_cast<float>(workers_);
    if (actions.outer.kind == RuleKind::block) {
      update_element<RuleKind::block>(rule, scale, sum, anchor, velocity, none);
    } else if (actions.outer.kind == RuleKind::nesterov) {
      update_element<RuleKind::nesterov>(rule, scale, sum, anchor, velocity, none);
    } else {
      update_element<RuleKind::momentum>(rule, scale, sum, anchor, velocity, none);
    }
    weights.assign(workers_, anchor);
    ++rounds;
  }

 private:
  std::unique_ptr<RoundPolicy> policy_;
  const std::uint32_t workers_;
  const std::uint64_t batch_;
  std::uint64_t steps_ = 0;

 public:
  std::vector<float> weights;
  float anchor = 0, velocity = 0;
  int rounds = 0;
};

PolicySettings cntk(std::uint64_t block) {
  return {.kind = PolicyKind::block_momentum, .block_samples = block, .block_rule = BlockRule::cntk};
}

TEST(BlockMomentum, InCntksFormIsCntksLearnerWithoutItsFaults) {
  for (const std::uint32_t workers : {1U, 2U, 4U, 7U}) {
    for (const bool nesterov : {true, false}) {
      PolicySettings settings = cntk(workers * 50 * 3);
      settings.nesterov = nesterov;
      PolicyRun ours{settings, workers, 50};
      CntkSimulation theirs{workers, workers * 150.0, {}, nesterov};
      for (int step = 0; step < 60; ++step) {
        std::vector<double> moves;
        for (std::uint32_t i = 0; i < workers; ++i) {
          moves.push_back(random_normal(workers, static_cast<std::uint64_t>(step) * 16 + i));
          theirs.train(i, 50, moves.back());
        }
        ours.step(moves);
        if (step % 3 == 2) theirs.synchronize();
        for (std::uint32_t i = 0; i < workers; ++i) {
          ASSERT_NEAR(ours.weights[i], theirs.weights[i], 1e-3)
              << workers << " workers, step " << step << ", worker " << i;
        }
      }
      EXPECT_EQ(ours.rounds, 20);
    }
  }
}

TEST(BlockMomentum, InCntksFormMovesTwiceAsFarAsInThePapersWhereAllGoTheSameWay) {
  constexpr std::uint32_t kWorkers = 4;
  PolicyRun theirs{cntk(400), kWorkers, 100};
  PolicyRun paper{{.kind = PolicyKind::block_momentum, .block_samples = 400}, kWorkers, 100};
  const std::vector<double> one(kWorkers, 1.0);
  const auto moved_by = [&](PolicyRun& run) {
    for (int block = 0; block < 200; ++block) run.step(one);
    const float before = run.anchor;
    run.step(one);
    return run.anchor - before;
  };
  EXPECT_NEAR(moved_by(theirs), 2 * kWorkers - 1, 1e-2);
  EXPECT_NEAR(moved_by(paper), kWorkers, 1e-2);
}

TEST(CntkQuirk, LocalCountsLetReplicasDivergeWhenASynchronizationComesInsideABlock) {
  for (const bool on : {true, false}) {
    CntkSimulation run{2, 100, {.local_counts = on}};
    for (int block = 0; block < 3; ++block) {
      run.train(0, 50, 1.0);
      run.train(1, block == 2 ? 20 : 50, 0.5);  // a checkpoint does not wait for the second
      run.synchronize();
    }
    EXPECT_EQ(run.weights[0] != run.weights[1], on);
  }
}

TEST(CntkQuirk, EmptyBlockMovesTheModelByTwiceItsVelocity) {
  for (const bool on : {true, false}) {
    CntkSimulation run{2, 100, {.empty_block_moves = on}};
    for (std::size_t worker : {0, 1}) run.train(worker, 50, 1.0);
    run.synchronize();
    const double before = run.weights[0], velocity = run.velocity[0];
    run.synchronize();
    EXPECT_DOUBLE_EQ(run.weights[0], on ? before - 2 * velocity : before);
  }
}

TEST(CntkQuirk, KeepingTheLookAheadIsWhatDoublesTheStep) {
  for (const bool on : {true, false}) {
    CntkSimulation run{4, 400, {.keeps_look_ahead = on}};
    double before = 0;
    for (int block = 0; block < 300; ++block) {
      before = run.anchor[0];
      for (std::size_t worker = 0; worker < 4; ++worker) run.train(worker, 100, 1.0);
      run.synchronize();
    }
    EXPECT_NEAR(run.anchor[0] - before, on ? 7 : 4, 1e-6);
  }
}

TEST(CntkQuirk, ForgettingTheAnchorLosesTheBlockInProgress) {
  for (const bool on : {true, false}) {
    CntkSimulation run{2, 100, {.restore_forgets_anchor = on}}, straight{2, 100, {}};
    for (CntkSimulation* each : {&run, &straight}) {
      for (std::size_t worker : {0, 1}) each->train(worker, 25, 1.0);
    }
    run.restore();
    for (CntkSimulation* each : {&run, &straight}) {
      for (std::size_t worker : {0, 1}) each->train(worker, 25, 1.0);
      each->synchronize();
    }
    EXPECT_EQ(run.weights[0] != straight.weights[0], on);
  }
}

TEST(Policy, OfDiLoCoIsBlockMomentumWithOtherConstants) {
  PolicyRun diloco{{.kind = PolicyKind::diloco, .every_steps = 5}, 3, 40};
  PolicyRun block{{.kind = PolicyKind::block_momentum,
                   .block_samples = 600,
                   .outer_momentum = 0.9,
                   .outer_rate = 0.7,
                   .reset_momentum = false},
                  3,
                  40};
  for (int step = 0; step < 40; ++step) {
    std::vector<double> moves;
    for (std::uint64_t i = 0; i < 3; ++i) moves.push_back(random_normal(9, static_cast<std::uint64_t>(step) * 3 + i));
    diloco.step(moves);
    block.step(moves);
    ASSERT_EQ(diloco.weights, block.weights) << "step " << step;
  }
  EXPECT_EQ(diloco.rounds, 8);
}

TEST(Policy, OfABlockEndsItWithTheLastStep) {
  const auto policy = make_round_policy({.kind = PolicyKind::local_sgd, .every_steps = 100}, 2);
  EXPECT_EQ(policy->next({.step = Step{0}, .samples = 10}).sent, Sent::nothing);
  EXPECT_EQ(policy->next({.step = Step{1}, .samples = 10, .last = true}).sent, Sent::delta);
}

TEST(Policy, OfDoubleBufferingNeverHasTwoRoundsInProgressAndNoneWhereConsistencyIsAsked) {
  const auto policy = make_round_policy({.kind = PolicyKind::double_buffered}, 2);
  bool under_way = false;
  for (std::uint64_t step = 0; step < 200; ++step) {
    const bool consistent = random_below(3, step, 4) == 0;
    const StepActions actions = policy->next({.step = Step{step}, .samples = 10, .consistent = consistent});
    EXPECT_EQ(actions.sent, Sent::gradient);
    EXPECT_EQ(actions.finish_previous, under_way);
    EXPECT_EQ(actions.finish, consistent);
    under_way = !actions.finish;
  }
}

TEST(Policy, RefusesSettingsThatCannotWork) {
  EXPECT_NE(check_policy({.kind = PolicyKind::block_momentum, .block_samples = 399}, 4, 100), "");
  EXPECT_EQ(check_policy({.kind = PolicyKind::block_momentum, .block_samples = 400}, 4, 100), "");
  EXPECT_NE(check_policy({.kind = PolicyKind::post_local_sgd, .every_steps = 4}, 4, 100), "");
  EXPECT_NE(
      check_policy(
          {.kind = PolicyKind::block_momentum, .block_samples = 4000, .outer_momentum = 0.5, .time_constant = 1000}, 4,
          100),
      "");
  EXPECT_NE(check_policy({.kind = PolicyKind::easgd, .every_steps = 4, .elasticity = 0.3}, 4, 100), "");
}

}  // namespace
}  // namespace troupe
