#include "runtime/compute/rules/rate_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.hpp"
#include "runtime/compute/rules/rule.hpp"

namespace troupe {
namespace {

constexpr RunLength kRun{.epoch_samples = 1000, .run_samples = 10000, .rank_batch = 50};
constexpr std::uint64_t kStep = 100;  // samples of all ranks in a step

double rate(const RateSettings& settings, std::uint64_t samples, std::uint64_t step_samples = kStep) {
  return RateSchedule(0.5, settings, kRun).at(samples, step_samples);
}

TEST(RateSchedule, IsConstantWhereNothingIsSaid) {
  EXPECT_EQ(RateSchedule{0.5}.at(123456, kStep), 0.5);
  EXPECT_EQ(rate({}, 0), 0.5);
  EXPECT_EQ(rate({}, 999999), 0.5);
}

TEST(RateSchedule, StepMultipliesAtEveryMultiple) {
  const RateSettings s{.shape = RateShape::step, .every = {.epochs = 2}, .factor = 0.5};
  EXPECT_EQ(rate(s, 1999), 0.5);
  EXPECT_EQ(rate(s, 2000), 0.25);
  EXPECT_EQ(rate(s, 6100), 0.0625);
}

TEST(RateSchedule, MultiStepMultipliesWhereItIsTold) {
  const RateSettings s{.shape = RateShape::multi_step, .at = {{.samples = 300}, {.epochs = 4}}, .factor = 0.5};
  EXPECT_EQ(rate(s, 299), 0.5);
  EXPECT_EQ(rate(s, 300), 0.25);
  EXPECT_EQ(rate(s, 3999), 0.25);
  EXPECT_EQ(rate(s, 4000), 0.125);
}

TEST(RateSchedule, ExponentialMultipliesALittleInEveryStep) {
  const RateSettings s{.shape = RateShape::exponential, .every = {.samples = 500}, .factor = 0.25};
  EXPECT_DOUBLE_EQ(rate(s, 250), 0.25);
  EXPECT_DOUBLE_EQ(rate(s, 500), 0.125);
}

TEST(RateSchedule, PolynomialAndCosineReachTheirEndAndStayThere) {
  const RateSettings line{.shape = RateShape::polynomial, .end_factor = 0.1};
  EXPECT_DOUBLE_EQ(rate(line, 5000), 0.5 * 0.55);
  EXPECT_DOUBLE_EQ(rate(line, 10000), 0.05);
  EXPECT_DOUBLE_EQ(rate(line, 20000), 0.05);
  const RateSettings square{.shape = RateShape::polynomial, .over = {.epochs = 4}, .power = 2};
  EXPECT_DOUBLE_EQ(rate(square, 2000), 0.125);
  EXPECT_EQ(rate(square, 4000), 0);
  const RateSettings cosine{.shape = RateShape::cosine, .end_factor = 0.2};
  EXPECT_EQ(rate(cosine, 0), 0.5);
  EXPECT_NEAR(rate(cosine, 5000), 0.3, 1e-15);
  EXPECT_NEAR(rate(cosine, 2500), 0.1 + 0.4 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(rate(cosine, 30000), 0.1);
}

TEST(RateSchedule, OneCycleRisesToTheRateAndFallsBeyondItsStart) {
  const RateSettings s{.shape = RateShape::one_cycle, .end_factor = 0.001};
  EXPECT_DOUBLE_EQ(rate(s, 0), 0.02);
  EXPECT_DOUBLE_EQ(rate(s, 1500), (0.02 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(rate(s, 3000), 0.5);
  EXPECT_DOUBLE_EQ(rate(s, 10000), 0.0005);
}

TEST(RateSchedule, WarmsUpInALineOfSamplesToWhatTheShapeSays) {
  const RateSettings s{.warmup = {.epochs = 2}, .warmup_from = 0.2};
  EXPECT_DOUBLE_EQ(rate(s, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate(s, 1000), 0.3);
  EXPECT_EQ(rate(s, 2000), 0.5);
  const RateSettings both{.shape = RateShape::polynomial, .warmup = {.samples = 5000}};
  EXPECT_DOUBLE_EQ(rate(both, 2500), 0.5 * 0.75 * 0.5);
  EXPECT_DOUBLE_EQ(rate(both, 5000), 0.25);
}

TEST(RateSchedule, ScalesWithTheSamplesOfAStepAndWarmsUpFromTheUnscaledRate) {
  RateSettings s{.linear = true};
  EXPECT_EQ(rate(s, 0), 1.0);  // two ranks of 50
  s.reference_batch = 25;
  EXPECT_EQ(rate(s, 0), 2.0);
  s.warmup = {.epochs = 5};
  EXPECT_DOUBLE_EQ(rate(s, 0), 0.5);
  EXPECT_DOUBLE_EQ(rate(s, 2500), 1.25);
  EXPECT_EQ(rate(s, 5000), 2.0);
}

TEST(RateSchedule, IsTheSameOfAsManySamplesWhateverStepsTookThem) {
  const RateSettings s{.shape = RateShape::cosine, .warmup = {.epochs = 1}};
  for (std::uint64_t samples = 0; samples < 12000; samples += 600)
    EXPECT_EQ(rate(s, samples, 50), rate(s, samples, 600));
}

TEST(RateSchedule, RefusesStretchesThatAreMissingOrComeToNothing) {
  EXPECT_THROW(rate({.shape = RateShape::step}, 0), Error);
  EXPECT_THROW(rate({.shape = RateShape::exponential, .every = {.epochs = 1e-6}}, 0), Error);
  EXPECT_THROW(rate({.shape = RateShape::multi_step}, 0), Error);
  EXPECT_THROW(rate({.shape = RateShape::multi_step, .at = {{.epochs = 4}, {.epochs = 2}}}, 0), Error);
}

TEST(RateSchedule, HasATextWithEverythingThatCounts) {
  EXPECT_EQ(to_string(RateSettings{}), "constant");
  EXPECT_EQ(to_string({.shape = RateShape::multi_step, .at = {{.epochs = 30}, {.epochs = 60}}, .linear = true}),
            "multi_step by 0.1 at 30 epochs, 60 epochs, scaled by update samples / rank's batch");
  EXPECT_EQ(to_string({.shape = RateShape::cosine, .warmup = {.samples = 500}}),
            "cosine over the run, down to 0, warm-up 500 samples from 0");
}

/// Goyal et al. 2017, section 2.2: where the velocity u = m u + rate g holds the rate, u must be multiplied by new/old
/// rate whenever it changes. Ours keeps the rate outside of v, which is that correction.
TEST(RateSchedule, NeedsNoMomentumCorrectionWhereTheRateStaysOutsideOfTheVelocity) {
  const RateSettings settings{.warmup = {.samples = 1500}, .warmup_from = 0.1};
  const RateSchedule schedule{0.5, settings, kRun};
  Rule rule{.kind = RuleKind::momentum};
  float p = 1, v = 0, none = 0;
  double corrected = 1, uncorrected = 1, u = 0, w = 0, before = schedule.at(0, kStep);
  for (std::uint64_t t = 1; t <= 20; ++t) {
    rule.rate = schedule.at((t - 1) * kStep, kStep);
    const double g = std::sin(static_cast<double>(t));
    update_element(rule_step(rule, t), 1, static_cast<float>(g), p, v, none);
    u = rule.momentum * u * (rule.rate / before) + rule.rate * g;
    corrected -= u;
    w = rule.momentum * w + rule.rate * g;
    uncorrected -= w;
    before = rule.rate;
    EXPECT_NEAR(p, corrected, 1e-5) << t;
  }
  EXPECT_GT(std::abs(uncorrected - corrected), 0.05);  // what the correction is for
}

}  // namespace
}  // namespace troupe
