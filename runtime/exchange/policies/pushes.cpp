#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {
namespace {

/// The ranks' side of the hosted policies; what is applied when, the shards decide.
class Pushes final : public RoundPolicy {
 public:
  explicit Pushes(bool works_locally) : works_locally_(works_locally) {}
  StepOrders next(const StepFacts& facts) override {
    StepOrders orders;
    orders.hosted = true;
    orders.finish = facts.last || facts.consistent;
    return orders;
  }
  bool works_locally() const noexcept override { return works_locally_; }

 private:
  const bool works_locally_;
};

}  // namespace

std::unique_ptr<RoundPolicy> pushes(bool works_locally) { return std::make_unique<Pushes>(works_locally); }

}  // namespace troupe::policies
