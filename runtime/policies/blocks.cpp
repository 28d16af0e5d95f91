#include <utility>

#include "runtime/policies/detail/lent_policies.hpp"

namespace troupe::policies {

std::optional<std::uint64_t> Blocks::count(const StepFacts& facts) {
  ++steps_;
  samples_ += facts.samples;
  const bool full = steps_each_ != 0 ? steps_ >= steps_each_ : samples_ >= samples_each_;
  if (!full && !facts.last) return {};
  steps_ = 0;
  return std::exchange(samples_, 0);
}

StepOrders local_step(const std::optional<Rule>& outer) {
  StepOrders orders;
  orders.local_update = true;
  if (!outer) return orders;
  orders.sent = Sent::delta;
  orders.outer = *outer;
  orders.finish = true;
  return orders;
}

Rule averaging_rule() { return {.kind = RuleKind::sgd, .rate = 1}; }

}  // namespace troupe::policies
