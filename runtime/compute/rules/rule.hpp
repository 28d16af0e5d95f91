#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/any_processor.hpp"

namespace troupe {

/// `block` is of policies alone, and `swap` of the exchange: no settings of an optimizer.
enum class RuleKind : std::uint8_t {
  sgd,
  momentum,
  nesterov,
  adam,
  adamw,
  adagrad,
  rmsprop,
  rmsprop_momentum,
  block,
  lars,
  lamb,
  swap
};

/// The arithmetic of an optimizer as a value; kRules has the formulas. docs/extending.md lists all that a new rule
/// needs.
struct Rule {
  RuleKind kind = RuleKind::adam;
  double rate = 0.001;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double alpha = 0.99;
  double look_ahead = 0;
  double trust = 0.001;
  double ema_decay = 0;           // of the moving average of the parameters; 0: there is none
  double clip_norm = 0;           // the mean gradient's L2 norm is cut to this; 0: it is not
  bool skips_non_finite = false;  // an update with a gradient that is not finite changes nothing
  bool stops_non_finite = false;  // nor does it here, and the run does not go on from it
  bool scales_loss = false;       // nor here: the loss scale was too large (loss_scale.hpp)
  friend bool operator==(const Rule&, const Rule&) = default;
};

/// Whether all ranks must agree on an update, from its whole gradient, before it begins.
constexpr bool needs_verdict(const Rule& rule) noexcept {
  return rule.clip_norm > 0 || rule.skips_non_finite || rule.stops_non_finite || rule.scales_loss;
}
/// Whether ranks that train by themselves can follow it: a loss scale each of them can judge alone.
constexpr bool needs_common_verdict(const Rule& rule) noexcept {
  return rule.clip_norm > 0 || ((rule.skips_non_finite || rule.stops_non_finite) && !rule.scales_loss);
}

/// What rules keep, and behind it the average of the parameters.
inline constexpr std::size_t kMaxRuleStates = 2;
inline constexpr std::size_t kMaxStateSlots = kMaxRuleStates + 1;

/// The properties of a rule, besides its arithmetic (update_element), as data.
struct RuleEntry {
  std::string_view name;
  std::string_view word;    // of optimizer.rule; empty: no setting
  std::string_view update;  // its formula, as docs/optimizers.md has it, where the terms are explained
  std::array<std::string_view, kMaxRuleStates> state;  // what it keeps, an f32 per parameter each; the rest is empty
  std::array<double Rule::*, 3> reads;  // the constants that it reads beside rate and weight_decay; the rest is null
  bool tensor_norms = false;  // the rate of each tensor of two or more dimensions follows from norms (tensor_norms.hpp)
};
/// In the order of RuleKind. Sources: Kingma, Ba 2015 (Adam), algorithm 1; Loshchilov, Hutter 2019 (Decoupled weight
/// decay), algorithm 2; Duchi, Hazan, Singer 2011 (Adaptive subgradient methods), the diagonal form of figure 1;
/// Tieleman, Hinton 2012 (lecture 6.5), not centred, epsilon outside; You, Gitman, Ginsburg 2017 (Large batch training
/// of convolutional networks), algorithm 1 (LARS); You et al. 2020 (Large batch optimization for deep learning),
/// algorithm 2 (LAMB). Momentum is PyTorch's form: the rate stays outside v, but for block and lars, where it changes
/// with the block or the tensor.
inline constexpr std::array kRules{
    RuleEntry{"sgd", "sgd", "`p -= rate * g`", {}, {}},
    RuleEntry{"momentum", "momentum", "`v = momentum * v + g; p -= rate * v`", {"v"}, {&Rule::momentum}},
    RuleEntry{
        "nesterov", "nesterov", "`v = momentum * v + g; p -= rate * (g + momentum * v)`", {"v"}, {&Rule::momentum}},
    RuleEntry{"adam",
              "adam",
              "`m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g²; p -= rate * (m / (1 - beta1^t)) / "
              "(sqrt(v / (1 - beta2^t)) + epsilon)`",
              {"m", "v"},
              {&Rule::beta1, &Rule::beta2, &Rule::epsilon}},
    RuleEntry{"adamw",
              "adamw",
              "`p -= rate * weight_decay * p`, then as adam",
              {"m", "v"},
              {&Rule::beta1, &Rule::beta2, &Rule::epsilon}},
    RuleEntry{"adagrad", "adagrad", "`s += g²; p -= rate * g / (sqrt(s) + epsilon)`", {"s"}, {&Rule::epsilon}},
    RuleEntry{"rmsprop",
              "rmsprop",
              "`s = alpha * s + (1 - alpha) * g²; p -= rate * g / (sqrt(s) + epsilon)`",
              {"s"},
              {&Rule::alpha, &Rule::epsilon}},
    RuleEntry{"rmsprop_momentum",
              "rmsprop",
              "s as above; `v = momentum * v + g / (sqrt(s) + epsilon); p -= rate * v`",
              {"s", "v"},
              {&Rule::alpha, &Rule::epsilon, &Rule::momentum}},
    RuleEntry{"block",
              "",
              "`v = momentum * v + rate * g; p -= v + look_ahead * v`",
              {"v"},
              {&Rule::momentum, &Rule::look_ahead}},
    RuleEntry{
        "lars",
        "lars",
        "`ratio = trust * ‖p‖ / (‖g‖ + weight_decay * ‖p‖)`, with g without weight decay; `v = momentum * v + rate * "
        "ratio * (g + weight_decay * p); p -= v`",
        {"v"},
        {&Rule::momentum, &Rule::trust},
        /*tensor_norms=*/true},
    RuleEntry{
        "lamb",
        "lamb",
        "m, v as adam; `r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * p; ratio = "
        "‖p‖ / ‖r‖; p -= rate * ratio * r`",
        {"m", "v"},
        {&Rule::beta1, &Rule::beta2, &Rule::epsilon},
        /*tensor_norms=*/true},
    RuleEntry{"swap", "", "parameters and state change places; no gradient is read", {"a"}, {}}};
inline constexpr std::array kRuleKinds = [] {
  std::array<RuleKind, kRules.size()> kinds{};
  for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<RuleKind>(i);
  return kinds;
}();
constexpr const RuleEntry& entry_of(RuleKind kind) noexcept { return kRules[static_cast<std::size_t>(kind)]; }
constexpr std::string_view name_of(RuleKind kind) noexcept { return entry_of(kind).name; }
/// How many f32 per parameter the rule keeps, without an average.
constexpr std::size_t state_slots(RuleKind kind) noexcept {
  const auto& state = entry_of(kind).state;
  return (state[0].empty() ? 0 : 1) + (state[1].empty() ? 0 : 1);
}
/// With it: the last slot is the average.
constexpr std::size_t state_slots(const Rule& rule) noexcept {
  return state_slots(rule.kind) + (rule.ema_decay > 0 ? 1 : 0);
}
constexpr bool reads(RuleKind kind, double Rule::*constant) noexcept {
  const auto& all = entry_of(kind).reads;
  return all[0] == constant || all[1] == constant || all[2] == constant;
}
constexpr bool needs_tensor_norms(RuleKind kind) noexcept { return entry_of(kind).tensor_norms; }
/// Whether an update needs its whole gradient before it begins; otherwise buckets are updated one by one.
constexpr bool gathers_first(const Rule& rule) noexcept { return needs_verdict(rule) || needs_tensor_norms(rule.kind); }
/// The rule, with the kind that its momentum implies: rmsprop becomes another kind with a momentum. The momentum of
/// rmsprop is 0 unless `given`. Other rules are returned unchanged.
Rule with_momentum(Rule rule, bool given) noexcept;
std::string to_string(const Rule& rule);

/// The number of an update since the state was zero, and what constants that change with it follow from.
struct UpdateCount {
  std::uint64_t t = 0;  // from 1; 0: no constants change
  double rate = 0, beta1 = 0, beta2 = 0;
  double ema_decay = 0;
  friend bool operator==(const UpdateCount&, const UpdateCount&) = default;
};

/// A rule's constants for one update, ready for a kernel; f32, computed in f64.
struct RuleStep {
  RuleKind kind = RuleKind::sgd;
  float rate = 0;   // adam: rate / (1 - beta1^t)
  float decay = 0;  // weight decay added to g; adamw: rate * weight_decay
  float momentum = 0;
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;  // rmsprop: alpha
  float first_scale = 0;                 // lamb: 1 / (1 - beta1^t)
  float second_scale = 0;                // adam, lamb: 1 / (1 - beta2^t)
  float epsilon = 0;
  float look_ahead = 0;
  float trust = 0;
  float average = 0;     // weight of the parameters in their moving average; 0: there is none
  double clip_norm = 0;  // as in Rule
  bool judged = false;   // needs_verdict(): StepSums::gradient_squares or bad_gradient is known
  UpdateCount count{};   // with a loss scale: devices know how many of these updates were left out
  friend bool operator==(const RuleStep&, const RuleStep&) = default;
};
constexpr std::size_t state_slots(const RuleStep& rule) noexcept {
  return state_slots(rule.kind) + (rule.average > 0 ? 1 : 0);
}
/// The decay of the average in update `t`, from 1: smaller in the first ones, so that the weights at the start of the
/// run are soon forgotten; min(decay, (1 + t) / (10 + t)).
TROUPE_ANY_PROCESSOR inline double ema_decay_at(double decay, std::uint64_t t) noexcept {
  const auto updates = static_cast<double>(t);
  const double first = (1 + updates) / (10 + updates);
  return decay < first ? decay : first;
}
/// Sets the constants that change with the number of the update, for kinds that read beta1, and the average's.
TROUPE_ANY_PROCESSOR inline void set_corrections(RuleStep& step, const UpdateCount& count) noexcept {
  if (count.ema_decay > 0) step.average = static_cast<float>(1 - ema_decay_at(count.ema_decay, count.t));
  if (count.beta1 <= 0 && count.beta2 <= 0) return;
  const auto updates = static_cast<double>(count.t);
  const double first_scale = 1 / (1 - std::pow(count.beta1, updates));
  if (step.kind == RuleKind::lamb)
    step.first_scale = static_cast<float>(first_scale);
  else
    step.rate = static_cast<float>(count.rate / (1 - std::pow(count.beta1, updates)));
  step.second_scale = static_cast<float>(1 / (1 - std::pow(count.beta2, updates)));
}
/// The same update, if `left_out` of those before it changed nothing.
TROUPE_ANY_PROCESSOR inline RuleStep without_left_out(RuleStep step, std::uint32_t left_out) noexcept {
  if (left_out == 0 || step.count.t <= left_out) return step;
  UpdateCount count = step.count;
  count.t -= left_out;
  set_corrections(step, count);
  return step;
}
/// The constants of update number `t`, counted from 1.
RuleStep rule_step(const Rule& rule, std::uint64_t t);

/// The direction in which a rule with tensor norms moves a parameter, without changing anything: the mean gradient
/// (lars), or Adam's step with weight decay (lamb).
template <RuleKind kKind>
TROUPE_ANY_PROCESSOR inline float update_direction(const RuleStep& r, float scale, float sum, float p, float s0,
                                                   float s1) noexcept {
  const float g = sum * scale;
  if constexpr (kKind == RuleKind::lamb) {
    const float m = r.beta1 * s0 + r.one_minus_beta1 * g;
    const float v = r.beta2 * s1 + r.one_minus_beta2 * (g * g);
    return m * r.first_scale / (std::sqrt(v * r.second_scale) + r.epsilon) + r.decay * p;
  }
  return g;
}

/// The update of one element, which every kernel repeats exactly: `sum` is the summed gradient, `scale` is 1/samples.
/// Kernels are built without fused multiply-add, so all vector widths give the same bits. For rules with tensor norms,
/// the rate is that of the element's tensor.
template <RuleKind kKind>
TROUPE_ANY_PROCESSOR inline void update_element(const RuleStep& r, float scale, float sum, float& p, float& s0,
                                                float& s1) noexcept {
  float g = sum * scale;
  if constexpr (kKind != RuleKind::adamw && kKind != RuleKind::lamb) g += r.decay * p;
  if constexpr (kKind == RuleKind::sgd) {
    p -= r.rate * g;
  } else if constexpr (kKind == RuleKind::momentum) {
    s0 = r.momentum * s0 + g;
    p -= r.rate * s0;
  } else if constexpr (kKind == RuleKind::nesterov) {
    s0 = r.momentum * s0 + g;
    p -= r.rate * (g + r.momentum * s0);
  } else if constexpr (kKind == RuleKind::adagrad) {
    s0 += g * g;
    p -= r.rate * g / (std::sqrt(s0) + r.epsilon);
  } else if constexpr (kKind == RuleKind::rmsprop) {
    s0 = r.beta2 * s0 + r.one_minus_beta2 * (g * g);
    p -= r.rate * g / (std::sqrt(s0) + r.epsilon);
  } else if constexpr (kKind == RuleKind::rmsprop_momentum) {
    s0 = r.beta2 * s0 + r.one_minus_beta2 * (g * g);
    s1 = r.momentum * s1 + g / (std::sqrt(s0) + r.epsilon);
    p -= r.rate * s1;
  } else if constexpr (kKind == RuleKind::block) {
    s0 = r.momentum * s0 + r.rate * g;
    p -= s0 + r.look_ahead * s0;
  } else if constexpr (kKind == RuleKind::lars) {
    s0 = r.momentum * s0 + r.rate * g;
    p -= s0;
  } else if constexpr (kKind == RuleKind::lamb) {
    const float direction = update_direction<kKind>(r, scale, sum, p, s0, s1);
    s0 = r.beta1 * s0 + r.one_minus_beta1 * g;
    s1 = r.beta2 * s1 + r.one_minus_beta2 * (g * g);
    p -= r.rate * direction;
  } else if constexpr (kKind == RuleKind::swap) {
    const float before = p;  // std::swap is no function of a GPU
    p = s0;
    s0 = before;
  } else {
    if constexpr (kKind == RuleKind::adamw) p -= r.decay * p;
    s0 = r.beta1 * s0 + r.one_minus_beta1 * g;
    s1 = r.beta2 * s1 + r.one_minus_beta2 * (g * g);
    p -= r.rate * s0 / (std::sqrt(s1 * r.second_scale) + r.epsilon);
  }
}

/// One element of the average, once its parameter is updated; likewise.
TROUPE_ANY_PROCESSOR inline void average_element(const RuleStep& r, float p, float& average) noexcept {
  average += r.average * (p - average);
}

/// Calls `act` with the kind as a template argument.
template <class Act>
inline void for_kind(RuleKind kind, Act&& act) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    ((kind == kRuleKinds[kIndex] ? act.template operator()<kRuleKinds[kIndex]>() : void()), ...);
  }
  (std::make_index_sequence<kRuleKinds.size()>{});
}

/// The same for the kind in `r`, where speed does not matter.
inline void update_element(const RuleStep& r, float scale, float sum, float& p, float& s0, float& s1) noexcept {
  for_kind(r.kind, [&]<RuleKind kKind>() { update_element<kKind>(r, scale, sum, p, s0, s1); });
}

}  // namespace troupe
