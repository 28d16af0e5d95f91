#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// `block` is of policies alone: no setting of an optimizer.
enum class RuleKind : std::uint8_t { sgd, momentum, nesterov, adam, adamw, adagrad, rmsprop, rmsprop_momentum, block };
inline constexpr std::array kRuleKinds{
    RuleKind::sgd,     RuleKind::momentum, RuleKind::nesterov,         RuleKind::adam, RuleKind::adamw,
    RuleKind::adagrad, RuleKind::rmsprop,  RuleKind::rmsprop_momentum, RuleKind::block};

/// The arithmetic of an optimizer as a value. `g` below is the mean gradient over the step's samples (plus
/// weight_decay * p, except for AdamW).
///   sgd       p -= rate * g
///   momentum  v = momentum * v + g;  p -= rate * v                        (PyTorch's form: the rate stays outside v)
///   nesterov  v = momentum * v + g;  p -= rate * (g + momentum * v)
///   adam      m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= rate * (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + epsilon)
///             Source: Kingma, Ba 2015 (Adam), algorithm 1.
///   adamw     p -= rate * weight_decay * p, then as adam. Source: Loshchilov, Hutter 2019 (Decoupled weight decay),
///   algorithm 2.
///   adagrad   s += g^2;  p -= rate * g / (sqrt(s) + epsilon)
///             Source: Duchi, Hazan, Singer 2011 (Adaptive subgradient methods), the diagonal form of figure 1.
///   rmsprop   s = alpha s + (1-alpha) g^2;  p -= rate * g / (sqrt(s) + epsilon)     (not centred; epsilon outside)
///             Source: Tieleman, Hinton 2012 (lecture 6.5).
///   rmsprop_momentum   s as rmsprop;  v = momentum * v + g / (sqrt(s) + epsilon);  p -= rate * v
///   block     v = momentum * v + rate * g;  p -= v + look_ahead * v       (the rate inside v, as both change by block)
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
  double clip_norm = 0;           // the mean gradient's L2 norm is cut to this; 0: it is not
  bool skips_non_finite = false;  // an update with a gradient that is not finite changes nothing
  bool stops_non_finite = false;  // nor does it here, and the run does not go on from it
  friend bool operator==(const Rule&, const Rule&) = default;
};

/// Whether an update must know all of its gradient before it begins; otherwise buckets are updated one by one.
constexpr bool needs_verdict(const Rule& rule) noexcept {
  return rule.clip_norm > 0 || rule.skips_non_finite || rule.stops_non_finite;
}

inline constexpr std::size_t kMaxStateSlots = 2;

/// How many f32 per parameter the rule keeps: momentum, nesterov and block 1 (v), adam and adamw 2 (m, then v), adagrad
/// and rmsprop 1 (s), rmsprop_momentum 2 (s, then v).
constexpr std::size_t state_slots(RuleKind kind) noexcept {
  switch (kind) {
    case RuleKind::sgd: return 0;
    case RuleKind::momentum:
    case RuleKind::nesterov:
    case RuleKind::adagrad:
    case RuleKind::rmsprop:
    case RuleKind::block: return 1;
    case RuleKind::adam:
    case RuleKind::adamw:
    case RuleKind::rmsprop_momentum: return 2;
  }
  return 0;
}
std::string_view name_of(RuleKind kind) noexcept;
/// Which constants mean something to a rule, beside the rate and weight_decay.
bool uses_momentum(RuleKind kind) noexcept;
bool uses_betas(RuleKind kind) noexcept;
bool uses_alpha(RuleKind kind) noexcept;
bool uses_epsilon(RuleKind kind) noexcept;
std::string to_string(const Rule& rule);

/// A rule's constants for one update, ready for a kernel; f32, computed in f64.
struct RuleStep {
  RuleKind kind = RuleKind::sgd;
  float rate = 0;   // adam: rate / (1 - beta1^t)
  float decay = 0;  // weight decay added to g; adamw: rate * weight_decay
  float momentum = 0;
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;  // rmsprop: alpha
  float second_scale = 0;                // adam: 1 / (1 - beta2^t)
  float epsilon = 0;
  float look_ahead = 0;
  double clip_norm = 0;  // as in Rule
  bool judged = false;   // needs_verdict(): StepSums::gradient_squares is known
  friend bool operator==(const RuleStep&, const RuleStep&) = default;
};
/// The constants of update number `t`, counted from 1.
RuleStep rule_step(const Rule& rule, std::uint64_t t);

/// One element, the definition every kernel repeats: `sum` is the summed gradient, `scale` 1/samples. Kernels are built
/// without contraction to fused multiply-add, so all vector widths give the same bits.
template <RuleKind kKind>
inline void update_element(const RuleStep& r, float scale, float sum, float& p, float& s0, float& s1) noexcept {
  float g = sum * scale;
  if constexpr (kKind != RuleKind::adamw) g += r.decay * p;
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
  } else {
    if constexpr (kKind == RuleKind::adamw) p -= r.decay * p;
    s0 = r.beta1 * s0 + r.one_minus_beta1 * g;
    s1 = r.beta2 * s1 + r.one_minus_beta2 * (g * g);
    p -= r.rate * s0 / (std::sqrt(s1 * r.second_scale) + r.epsilon);
  }
}

/// The same for the kind that `r` names, where speed is not asked for.
inline void update_element(const RuleStep& r, float scale, float sum, float& p, float& s0, float& s1) noexcept {
  switch (r.kind) {
    case RuleKind::sgd: return update_element<RuleKind::sgd>(r, scale, sum, p, s0, s1);
    case RuleKind::momentum: return update_element<RuleKind::momentum>(r, scale, sum, p, s0, s1);
    case RuleKind::nesterov: return update_element<RuleKind::nesterov>(r, scale, sum, p, s0, s1);
    case RuleKind::adam: return update_element<RuleKind::adam>(r, scale, sum, p, s0, s1);
    case RuleKind::adamw: return update_element<RuleKind::adamw>(r, scale, sum, p, s0, s1);
    case RuleKind::adagrad: return update_element<RuleKind::adagrad>(r, scale, sum, p, s0, s1);
    case RuleKind::rmsprop: return update_element<RuleKind::rmsprop>(r, scale, sum, p, s0, s1);
    case RuleKind::rmsprop_momentum: return update_element<RuleKind::rmsprop_momentum>(r, scale, sum, p, s0, s1);
    case RuleKind::block: return update_element<RuleKind::block>(r, scale, sum, p, s0, s1);
  }
}

}  // namespace troupe
