#include "runtime/compute/rules/rule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe {

Rule with_momentum(Rule rule, bool given) noexcept {
  if (entry_of(rule.kind).word != "rmsprop") return rule;
  if (!given) rule.momentum = 0;
  rule.kind = rule.momentum > 0 ? RuleKind::rmsprop_momentum : RuleKind::rmsprop;
  return rule;
}

std::string to_string(const Rule& rule) {
  struct Constant {
    std::string_view name;
    double Rule::*member;
  };
  constexpr Constant kConstants[] = {{"momentum", &Rule::momentum}, {"look_ahead", &Rule::look_ahead},
                                     {"beta1", &Rule::beta1},       {"beta2", &Rule::beta2},
                                     {"alpha", &Rule::alpha},       {"epsilon", &Rule::epsilon},
                                     {"trust", &Rule::trust}};
  // fmt prints the shortest text that reads back as the same number, so equal texts mean equal rules.
  std::string out = fmt::format("{}(rate={}", name_of(rule.kind), rule.rate);
  for (const auto& [name, member] : kConstants)
    if (reads(rule.kind, member)) out += fmt::format(", {}={}", name, rule.*member);
  out += fmt::format(", weight_decay={}", rule.weight_decay);
  if (rule.ema_decay > 0) out += fmt::format(", ema_decay={}", rule.ema_decay);
  if (rule.clip_norm > 0) out += fmt::format(", clip_norm={}", rule.clip_norm);
  if (rule.skips_non_finite) out += ", skips non-finite";
  if (rule.scales_loss) out += ", scales the loss";
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
  UpdateCount count{.t = t, .ema_decay = rule.ema_decay};
  if (reads(rule.kind, &Rule::trust)) step.trust = static_cast<float>(rule.trust);
  if (reads(rule.kind, &Rule::epsilon)) step.epsilon = static_cast<float>(rule.epsilon);
  if (reads(rule.kind, &Rule::alpha)) {
    step.beta2 = static_cast<float>(rule.alpha);
    step.one_minus_beta2 = static_cast<float>(1 - rule.alpha);
  }
  if (reads(rule.kind, &Rule::beta1)) {
    count.rate = rule.rate, count.beta1 = rule.beta1, count.beta2 = rule.beta2;
    step.beta1 = static_cast<float>(rule.beta1);
    step.one_minus_beta1 = static_cast<float>(1 - rule.beta1);
    step.beta2 = static_cast<float>(rule.beta2);
    step.one_minus_beta2 = static_cast<float>(1 - rule.beta2);
    step.second_scale = 1;
  }
  set_corrections(step, count);
  if (rule.scales_loss) step.count = count;
  return step;
}

}  // namespace troupe
