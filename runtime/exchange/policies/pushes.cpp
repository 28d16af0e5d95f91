#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

class Pushes final : public RoundPolicy {
 public:
  StepActions next(const StepFacts& facts) override {
    StepActions actions;
    actions.hosted = true;
    actions.finish = facts.last || facts.consistent;
    return actions;
  }
};

}  // namespace

std::unique_ptr<RoundPolicy> pushes(const PolicySettings&, std::uint32_t) { return std::make_unique<Pushes>(); }

}  // namespace troupe::policies
