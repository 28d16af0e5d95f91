#include <utility>

#include "runtime/policies/detail/lent_policies.hpp"

namespace troupe::policies {
namespace {

/// Synchronous first: momentum, compression and blocks work from weights that have left the start.
class WarmStart final : public LentPolicy {
 public:
  WarmStart(std::uint64_t samples, std::unique_ptr<LentPolicy> policy)
      : samples_(samples), policy_(std::move(policy)) {}
  StepOrders next(const StepFacts& facts) override {
    if (facts.samples_before < samples_) return {.sent = Sent::gradient, .finish = true};
    StepOrders orders = policy_->next(facts);
    orders.gather_state = !begun_ && orders.local_update;
    begun_ = true;
    return orders;
  }
  bool works_locally() const noexcept override { return policy_->works_locally(); }

 private:
  const std::uint64_t samples_;
  const std::unique_ptr<LentPolicy> policy_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<LentPolicy> warm_start(std::uint64_t samples, std::unique_ptr<LentPolicy> policy) {
  return std::make_unique<WarmStart>(samples, std::move(policy));
}

}  // namespace troupe::policies
