#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// `block` is of policies alone: no setting of an optimizer.
enum class RuleKind : std::uint8_t { sgd, momentum, nesterov, adam, adamw, block };

/// The arithmetic of an optimizer as a value. `g` below is the mean gradient over the step's samples (plus
/// weight_decay * p, except for AdamW).
///   sgd       p -= rate * g
///   momentum  v = momentum * v + g;  p -= rate * v                        (PyTorch's form: the rate stays outside v)
///   nesterov  v = momentum * v + g;  p -= rate * (g + momentum * v)
///   adam      m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= rate * (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + epsilon)
///             Source: Kingma, Ba 2015 (Adam), algorithm 1.
///   adamw     p -= rate * weight_decay * p, then as adam. Source: Loshchilov, Hutter 2019 (Decoupled weight decay),
///   algorithm 2.
///   block     v = momentum * v + rate * g;  p -= v + look_ahead * v       (the rate inside v, as both change by block)
struct Rule {
  RuleKind kind = RuleKind::adam;
  double rate = 0.001;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double look_ahead = 0;
  friend bool operator==(const Rule&, const Rule&) = default;
};

inline constexpr std::size_t kMaxStateSlots = 2;

/// How many f32 per parameter the rule keeps: momentum, nesterov and block 1 (v), adam and adamw 2 (m, then v).
std::size_t state_slots(RuleKind kind) noexcept;
std::string_view name_of(RuleKind kind) noexcept;
std::string to_string(const Rule& rule);

/// A rule's constants for one update, ready for a kernel; f32, computed in f64.
struct RuleStep {
  RuleKind kind = RuleKind::sgd;
  float rate = 0;   // adam: rate / (1 - beta1^t)
  float decay = 0;  // weight decay added to g; adamw: rate * weight_decay
  float momentum = 0;
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float second_scale = 0;  // adam: 1 / (1 - beta2^t)
  float epsilon = 0;
  float look_ahead = 0;
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

}  // namespace troupe
