#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {
namespace {

/// A step's gradients are exchanged behind the next step's computation, so that weights lag by exactly one step. What
/// wants consistent weights, and the end, waits for the round under way and exchanges its own step at once: no gradient
/// is lost.
/// Source: Akiba, Fukuda, Suzuki 2017 (ChainerMN), double buffering.
class DoubleBuffered final : public RoundPolicy {
 public:
  StepOrders next(const StepFacts& facts) override {
    StepOrders orders;
    orders.finish_previous = under_way_;
    orders.sent = Sent::gradient;
    orders.finish = facts.consistent || facts.last;
    under_way_ = !orders.finish;
    return orders;
  }
  bool works_locally() const noexcept override { return false; }

 private:
  bool under_way_ = false;
};

}  // namespace

std::unique_ptr<RoundPolicy> double_buffered() { return std::make_unique<DoubleBuffered>(); }

}  // namespace troupe::policies
