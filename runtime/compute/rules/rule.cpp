#include "runtime/compute/rules/rule.hpp"

#include <fmt/format.h>

#include "runtime/base/error.hpp"

namespace troupe {

std::string_view name_of(RuleKind kind) noexcept {
  switch (kind) {
    case RuleKind::sgd: return "sgd";
    case RuleKind::momentum: return "momentum";
    case RuleKind::nesterov: return "nesterov";
    case RuleKind::adam: return "adam";
    case RuleKind::adamw: return "adamw";
    case RuleKind::adagrad: return "adagrad";
    case RuleKind::rmsprop: return "rmsprop";
    case RuleKind::rmsprop_momentum: return "rmsprop_momentum";
    case RuleKind::block: return "block";
  }
  return "unknown";
}

bool uses_momentum(RuleKind kind) noexcept {
  return kind == RuleKind::momentum || kind == RuleKind::nesterov || kind == RuleKind::rmsprop_momentum ||
         kind == RuleKind::block;
}
bool uses_betas(RuleKind kind) noexcept { return kind == RuleKind::adam || kind == RuleKind::adamw; }
bool uses_alpha(RuleKind kind) noexcept { return kind == RuleKind::rmsprop || kind == RuleKind::rmsprop_momentum; }
bool uses_epsilon(RuleKind kind) noexcept { return uses_betas(kind) || uses_alpha(kind) || kind == RuleKind::adagrad; }

std::string to_string(const Rule& rule) {
  // fmt prints the shortest text that reads back as the same number, so equal texts mean equal rules.
  std::string out = fmt::format("{}(rate={}", name_of(rule.kind), rule.rate);
  if (uses_momentum(rule.kind)) out += fmt::format(", momentum={}", rule.momentum);
  if (rule.kind == RuleKind::block) out += fmt::format(", look_ahead={}", rule.look_ahead);
  if (uses_betas(rule.kind)) out += fmt::format(", beta1={}, beta2={}", rule.beta1, rule.beta2);
  if (uses_alpha(rule.kind)) out += fmt::format(", alpha={}", rule.alpha);
  if (uses_epsilon(rule.kind)) out += fmt::format(", epsilon={}", rule.epsilon);
  out += fmt::format(", weight_decay={}", rule.weight_decay);
  if (rule.clip_norm > 0) out += fmt::format(", clip_norm={}", rule.clip_norm);
  if (rule.skips_non_finite) out += ", skips non-finite";
  if (rule.stops_non_finite) out += ", goes back from non-finite";
  return out + ")";
}

RuleStep rule_step(const Rule& rule, std::uint64_t t) {
  TROUPE_CHECK(t >= 1, Code::invalid, "update number ", t, " of ", name_of(rule.kind), ": updates count from 1");
  RuleStep step;
  step.kind = rule.kind;
  step.rate = static_cast<float>(rule.rate);
  step.decay = static_cast<float>(rule.kind == RuleKind::adamw ? rule.rate * rule.weight_decay : rule.weight_decay);
  step.momentum = static_cast<float>(rule.momentum);
  step.clip_norm = rule.clip_norm;
  step.judged = needs_verdict(rule);
  step.look_ahead = static_cast<float>(rule.look_ahead);
  if (uses_epsilon(rule.kind)) step.epsilon = static_cast<float>(rule.epsilon);
  if (uses_alpha(rule.kind)) {
    step.beta2 = static_cast<float>(rule.alpha);
    step.one_minus_beta2 = static_cast<float>(1 - rule.alpha);
  }
  if (!uses_betas(rule.kind)) return step;
  const auto updates = static_cast<double>(t);
  step.rate = static_cast<float>(rule.rate / (1 - std::pow(rule.beta1, updates)));
  step.beta1 = static_cast<float>(rule.beta1);
  step.one_minus_beta1 = static_cast<float>(1 - rule.beta1);
  step.beta2 = static_cast<float>(rule.beta2);
  step.one_minus_beta2 = static_cast<float>(1 - rule.beta2);
  step.second_scale = static_cast<float>(1 / (1 - std::pow(rule.beta2, updates)));
  return step;
}

}  // namespace troupe
