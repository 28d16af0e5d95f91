#include <utility>

#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {
namespace {

class LocalBlocks final : public RoundPolicy {
 public:
  LocalBlocks(const Blocks& blocks, const Rule& outer) : blocks_(blocks), outer_(outer) {}
  StepOrders next(const StepFacts& facts) override {
    return local_step(blocks_.count(facts) ? std::optional{outer_} : std::nullopt);
  }
  bool works_locally() const noexcept override { return true; }

 private:
  Blocks blocks_;
  const Rule outer_;
};

}  // namespace

std::optional<std::uint64_t> Blocks::count(const StepFacts& facts) {
  ++steps_;
  samples_ += facts.samples;
  const bool full = steps_each_ != 0 ? steps_ >= steps_each_ : samples_ >= samples_each_;
  if (!full && !facts.last) return {};
  steps_ = 0;
  return std::exchange(samples_, 0);
}

std::unique_ptr<RoundPolicy> local_blocks(const Blocks& blocks, const Rule& outer) {
  return std::make_unique<LocalBlocks>(blocks, outer);
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
