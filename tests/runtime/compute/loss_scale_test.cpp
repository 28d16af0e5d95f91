#include "runtime/compute/rules/loss_scale.hpp"

#include <gtest/gtest.h>

#include "runtime/compute/rules/rule.hpp"

namespace troupe {
namespace {

LossScaleState begun(const LossScaling& how) { return {first_scale(how), first_scale(how)}; }

TEST(LossScale, IsHalvedByAnOverflowAndDoubledAfterUpdatesWithout) {
  const LossScaling how{.start = 8, .growth_steps = 3};
  LossScaleState state = begun(how);
  adapt(state, how, ScaleVerdict::common, true, 1);
  EXPECT_EQ(state.now, (LossScale{4, 0.25F, 0, 1}));
  for (int update = 0; update < 3; ++update) adapt(state, how, ScaleVerdict::common, false, 1);
  EXPECT_EQ(state.now, (LossScale{8, 0.125F, 0, 1}));
  for (int update = 0; update < 2; ++update) adapt(state, how, ScaleVerdict::common, false, 1);
  adapt(state, how, ScaleVerdict::common, true, 1);
  EXPECT_EQ(state.now, (LossScale{4, 0.25F, 0, 2}));
  EXPECT_EQ(state.agreed, state.now);
}

TEST(LossScale, StaysWithinItsLimits) {
  const LossScaling how{.start = 2, .growth_steps = 1};
  LossScaleState state = begun(how);
  for (int update = 0; update < 5; ++update) adapt(state, how, ScaleVerdict::common, true, 1);
  EXPECT_EQ(state.now.scale, kLeastLossScale);
  EXPECT_EQ(state.now.left_out, 5U);
  for (int update = 0; update < 40; ++update) adapt(state, how, ScaleVerdict::common, false, 1);
  EXPECT_EQ(state.now.scale, kMostLossScale);
}

TEST(LossScale, DoesNotMoveWhereItIsFixed) {
  const LossScaling how{.fixed = 100, .growth_steps = 1};
  LossScaleState state = begun(how);
  adapt(state, how, ScaleVerdict::common, false, 1);
  adapt(state, how, ScaleVerdict::common, true, 1);
  EXPECT_EQ(state.now, (LossScale{100, 0.01F, 0, 1}));
}

TEST(LossScale, OfLocalStepsIsARanksOwnUntilTheRound) {
  const LossScaling how{.start = 64, .growth_steps = 6};
  LossScaleState one = begun(how), other = begun(how);
  for (const bool overflows : {true, true, false}) adapt(one, how, ScaleVerdict::own, overflows, 1);
  for (int step = 0; step < 3; ++step) adapt(other, how, ScaleVerdict::own, false, 1);
  EXPECT_EQ(one.now.scale, 16.0F);
  EXPECT_EQ(other.now.scale, 64.0F);
  for (LossScaleState* const rank : {&one, &other}) adapt(*rank, how, ScaleVerdict::round, true, 3);
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.now, (LossScale{32, 1.0F / 32, 0, 1}));
  for (int round = 0; round < 2; ++round) adapt(one, how, ScaleVerdict::round, false, 3);
  EXPECT_EQ(one.now.scale, 64.0F);
}

TEST(LossScale, UpdatesDoNotCountWhatWasLeftOut) {
  for (const RuleKind kind : {RuleKind::adam, RuleKind::adamw, RuleKind::lamb, RuleKind::sgd}) {
    const Rule rule{.kind = kind, .rate = 0.01, .ema_decay = 0.999, .scales_loss = true};
    RuleStep wanted = rule_step(rule, 5);
    RuleStep found = without_left_out(rule_step(rule, 7), 2);
    EXPECT_NE(rule_step(rule, 7), wanted);
    wanted.count = found.count = {};
    EXPECT_EQ(found, wanted) << name_of(kind);
  }
}

}  // namespace
}  // namespace troupe
