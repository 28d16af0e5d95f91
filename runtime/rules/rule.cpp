#include "runtime/rules/rule.hpp"

#include <fmt/format.h>

#include "runtime/error.hpp"

namespace troupe {

std::size_t state_slots(RuleKind kind) noexcept {
  switch (kind) {
    case RuleKind::sgd: return 0;
    case RuleKind::momentum:
    case RuleKind::nesterov:
    case RuleKind::block: return 1;
    case RuleKind::adam:
    case RuleKind::adamw: return 2;
  }
  return 0;
}

std::string_view name_of(RuleKind kind) noexcept {
  switch (kind) {
    case RuleKind::sgd: return "sgd";
    case RuleKind::momentum: return "momentum";
    case RuleKind::nesterov: return "nesterov";
    case RuleKind::adam: return "adam";
    case RuleKind::adamw: return "adamw";
    case RuleKind::block: return "block";
  }
  return "unknown";
}

std::string to_string(const Rule& rule) {
  // fmt prints the shortest text that reads back as the same number, so equal texts mean equal rules.
  std::string out = fmt::format("{}(rate={}", name_of(rule.kind), rule.rate);
  if (state_slots(rule.kind) == 1) out += fmt::format(", momentum={}", rule.momentum);
  if (rule.kind == RuleKind::block) out += fmt::format(", look_ahead={}", rule.look_ahead);
  if (state_slots(rule.kind) == 2) {
    out += fmt::format(", beta1={}, beta2={}, epsilon={}", rule.beta1, rule.beta2, rule.epsilon);
  }
  return out + fmt::format(", weight_decay={})", rule.weight_decay);
}

RuleStep rule_step(const Rule& rule, std::uint64_t t) {
  TROUPE_CHECK(t >= 1, Code::invalid, "update number ", t, " of ", name_of(rule.kind), ": updates count from 1");
  RuleStep step;
  step.kind = rule.kind;
  step.rate = static_cast<float>(rule.rate);
  step.decay = static_cast<float>(rule.kind == RuleKind::adamw ? rule.rate * rule.weight_decay : rule.weight_decay);
  step.momentum = static_cast<float>(rule.momentum);
  step.look_ahead = static_cast<float>(rule.look_ahead);
  if (state_slots(rule.kind) < 2) return step;
  const auto updates = static_cast<double>(t);
  step.rate = static_cast<float>(rule.rate / (1 - std::pow(rule.beta1, updates)));
  step.beta1 = static_cast<float>(rule.beta1);
  step.one_minus_beta1 = static_cast<float>(1 - rule.beta1);
  step.beta2 = static_cast<float>(rule.beta2);
  step.one_minus_beta2 = static_cast<float>(1 - rule.beta2);
  step.second_scale = static_cast<float>(1 / (1 - std::pow(rule.beta2, updates)));
  step.epsilon = static_cast<float>(rule.epsilon);
  return step;
}

}  // namespace troupe
