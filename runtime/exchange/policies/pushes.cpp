#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

class Pushes final : public RoundPolicy {
 public:
  StepOrders next(const StepFacts& facts) override {
    StepOrders orders;
    orders.hosted = true;
    orders.finish = facts.last || facts.consistent;
    return orders;
  }
};

}  // namespace

std::unique_ptr<RoundPolicy> pushes(const PolicySettings&, std::uint32_t) { return std::make_unique<Pushes>(); }

}  // namespace troupe::policies
