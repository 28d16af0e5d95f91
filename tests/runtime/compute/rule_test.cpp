#include "runtime/compute/rules/rule.hpp"

#include <gtest/gtest.h>

#include <array>

#include "runtime/base/error.hpp"
#include "tests/support/page_table.hpp"

namespace troupe {
namespace {

/// The formulas of kRules in f64, one element, written a second time.
struct Textbook {
  double p = 1, v = 0, m = 0;
  void update(const Rule& r, std::uint64_t t, double g) {
    if (r.kind != RuleKind::adamw && r.kind != RuleKind::lamb) g += r.weight_decay * p;
    const auto steps = static_cast<double>(t);
    switch (r.kind) {
      case RuleKind::sgd: p -= r.rate * g; break;
      case RuleKind::momentum:
        v = r.momentum * v + g;
        p -= r.rate * v;
        break;
      case RuleKind::nesterov:
        v = r.momentum * v + g;
        p -= r.rate * (g + r.momentum * v);
        break;
      case RuleKind::block:
        v = r.momentum * v + r.rate * g;
        p -= (1 + r.look_ahead) * v;
        break;
      case RuleKind::adamw: p -= r.rate * r.weight_decay * p; [[fallthrough]];
      case RuleKind::adam:
        m = r.beta1 * m + (1 - r.beta1) * g;
        v = r.beta2 * v + (1 - r.beta2) * g * g;
        p -=
            r.rate * (m / (1 - std::pow(r.beta1, steps))) / (std::sqrt(v / (1 - std::pow(r.beta2, steps))) + r.epsilon);
        break;
      case RuleKind::adagrad:
        v += g * g;
        p -= r.rate * g / (std::sqrt(v) + r.epsilon);
        break;
      case RuleKind::rmsprop:
        v = r.alpha * v + (1 - r.alpha) * g * g;
        p -= r.rate * g / (std::sqrt(v) + r.epsilon);
        break;
      case RuleKind::rmsprop_momentum:
        v = r.alpha * v + (1 - r.alpha) * g * g;
        m = r.momentum * m + g / (std::sqrt(v) + r.epsilon);
        p -= r.rate * m;
        break;
      case RuleKind::lars:
        v = r.momentum * v + r.rate * g;
        p -= v;
        break;
      case RuleKind::swap: std::swap(p, v); break;
      case RuleKind::lamb:
        m = r.beta1 * m + (1 - r.beta1) * g;
        v = r.beta2 * v + (1 - r.beta2) * g * g;
        p -= r.rate *
             ((m / (1 - std::pow(r.beta1, steps))) / (std::sqrt(v / (1 - std::pow(r.beta2, steps))) + r.epsilon) +
              r.weight_decay * p);
        break;
    }
  }
};

TEST(Rule, FollowsTheTextbookForEveryKindWithAndWithoutWeightDecay) {
  for (const RuleKind kind : kRuleKinds) {
    for (const double decay : {0.0, 0.1}) {
      const Rule rule{.kind = kind, .rate = 0.05, .weight_decay = decay, .look_ahead = 0.7};
      Textbook expected;
      float p = 1, s0 = 0, s1 = 0;
      for (std::uint64_t t = 1; t <= 20; ++t) {
        const double mean = std::sin(static_cast<double>(t));
        expected.update(rule, t, mean);
        update_element(rule_step(rule, t), 1.0F / 4, static_cast<float>(4 * mean), p, s0, s1);
        ASSERT_NEAR(p, expected.p, 2e-5 * std::abs(expected.p) + 1e-6) << to_string(rule) << " at update " << t;
      }
    }
  }
}

TEST(Rule, CorrectsTheBiasOfAdamsFirstUpdateSoThatItsSizeIsTheRate) {
  float p = 0, m = 0, v = 0;
  update_element<RuleKind::adam>(rule_step({.rate = 0.01}, 1), 1, 123, p, m, v);
  EXPECT_NEAR(p, -0.01, 1e-6);
}

TEST(Rule, KeepsAsManyStatesAsItsKindNeeds) {
  EXPECT_EQ(state_slots(RuleKind::sgd), 0U);
  EXPECT_EQ(state_slots(RuleKind::momentum), 1U);
  EXPECT_EQ(state_slots(RuleKind::nesterov), 1U);
  EXPECT_EQ(state_slots(RuleKind::adam), kMaxRuleStates);
  EXPECT_EQ(state_slots(RuleKind::adamw), kMaxRuleStates);
  EXPECT_EQ(state_slots(RuleKind::adagrad), 1U);
  EXPECT_EQ(state_slots(RuleKind::rmsprop), 1U);
  EXPECT_EQ(state_slots(RuleKind::rmsprop_momentum), 2U);
  EXPECT_EQ(state_slots(RuleKind::lars), 1U);
  EXPECT_EQ(state_slots(RuleKind::lamb), 2U);
}

TEST(Rule, HasAStateMoreWhereTheParametersAreAveraged) {
  EXPECT_EQ(state_slots(Rule{.kind = RuleKind::sgd, .ema_decay = 0.9}), 1U);
  EXPECT_EQ(state_slots(Rule{.kind = RuleKind::adam, .ema_decay = 0.9}), kMaxStateSlots);
  EXPECT_EQ(state_slots(Rule{.kind = RuleKind::adam}), 2U);
  EXPECT_EQ(state_slots(rule_step({.kind = RuleKind::lars, .ema_decay = 0.9}, 5)), 2U);
  EXPECT_EQ(state_slots(rule_step({.kind = RuleKind::lars}, 5)), 1U);
}

TEST(Rule, AveragesParametersWithADecayThatGrowsToTheOneThatIsWished) {
  const Rule rule{.kind = RuleKind::sgd, .rate = 0.1, .ema_decay = 0.5};
  double expected = 3;
  float p = 3, none = 0, average = 3;
  for (std::uint64_t t = 1; t <= 20; ++t) {
    const RuleStep step = rule_step(rule, t);
    update_element(step, 1, std::sin(static_cast<float>(t)), p, none, none);
    average_element(step, p, average);
    const double decay = std::min(0.5, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
    expected = decay * expected + (1 - decay) * p;
    ASSERT_NEAR(average, expected, 1e-5) << "update " << t;
  }
  EXPECT_EQ(ema_decay_at(0.5, 8), 0.5);
  EXPECT_EQ(ema_decay_at(0.999, 1), 2.0 / 11);
  EXPECT_NE(to_string(rule), to_string({.kind = RuleKind::sgd, .rate = 0.1}));
}

TEST(Rule, IsInTheTableOfDocsOptimizersAsItsEntrySays) {
  std::vector<std::string> rows;
  for (const RuleEntry& rule : kRules) {
    if (rule.word.empty()) continue;
    const std::string word = text(rule.word, rule.word == rule.name ? "" : " with `momentum` above 0");
    const std::string state = rule.state[0].empty()   ? "none"
                              : rule.state[1].empty() ? std::string{rule.state[0]}
                                                      : text(rule.state[0], ", ", rule.state[1]);
    rows.push_back(text("| ", word, " | ", rule.update, " | ", state, " |"));
  }
  EXPECT_EQ(test::table_of("docs/optimizers.md", "| `optimizer.rule` |"), rows) << "write into docs/optimizers.md:\n"
                                                                                << test::lines_of(rows);
}

TEST(Rule, BecomesAnotherRmspropByItsMomentum) {
  const Rule plain{.kind = RuleKind::rmsprop};
  EXPECT_EQ(with_momentum(plain, false), (Rule{.kind = RuleKind::rmsprop, .momentum = 0}));
  EXPECT_EQ(with_momentum(plain, true).kind, RuleKind::rmsprop_momentum);
  EXPECT_EQ(with_momentum({.kind = RuleKind::rmsprop_momentum, .momentum = 0}, true).kind, RuleKind::rmsprop);
  EXPECT_EQ(with_momentum({}, false), Rule{});
}

TEST(Rule, HasATextThatTellsDifferentRulesApart) {
  EXPECT_EQ(to_string({.kind = RuleKind::sgd, .rate = 0.1}), "sgd(rate=0.1, weight_decay=0)");
  EXPECT_NE(to_string({.rate = 0.1}), to_string({.rate = std::nextafter(0.1, 1.0)}));
  EXPECT_EQ(to_string({.kind = RuleKind::rmsprop, .rate = 0.1}),
            "rmsprop(rate=0.1, alpha=0.99, epsilon=1e-08, weight_decay=0)");
  EXPECT_NE(to_string({.beta2 = 0.99}), to_string({.beta2 = 0.999}));
}

TEST(Rule, CountsUpdatesFromOne) { EXPECT_THROW(rule_step({}, 0), Error); }

}  // namespace
}  // namespace troupe
