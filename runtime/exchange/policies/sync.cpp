#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {
namespace {

/// Every step's gradients, or those of several steps added up, make one update.
/// Source: Goyal et al. 2017 (Accurate, large minibatch SGD), section 2.
class Sync final : public RoundPolicy {
 public:
  explicit Sync(std::uint32_t accumulate) : accumulate_(accumulate) {}
  StepOrders next(const StepFacts& facts) override {
    StepOrders orders;
    if (++kept_ < accumulate_ && !facts.last) {
      orders.keep = true;
      return orders;
    }
    kept_ = 0;
    orders.sent = Sent::gradient;
    orders.finish = true;
    return orders;
  }
  bool works_locally() const noexcept override { return false; }

 private:
  const std::uint32_t accumulate_;
  std::uint32_t kept_ = 0;
};

}  // namespace

std::unique_ptr<RoundPolicy> sync(const PolicySettings& settings) {
  return std::make_unique<Sync>(settings.accumulate);
}

}  // namespace troupe::policies
