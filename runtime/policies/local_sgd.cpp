#include "runtime/policies/detail/lent_policies.hpp"

namespace troupe::policies {
namespace {

/// Every H steps the ranks' weights become their mean.
/// Source: Stich 2018 (Local SGD converges fast and communicates little), algorithm 1; after a synchronous start: Lin
/// et al. 2018 (Don't use large mini-batches, use local SGD), post-local SGD.
class LocalSgd final : public LentPolicy {
 public:
  explicit LocalSgd(std::uint32_t every_steps) : blocks_(every_steps, 0) {}
  StepOrders next(const StepFacts& facts) override {
    return local_step(blocks_.count(facts) ? std::optional{averaging_rule()} : std::nullopt);
  }
  bool works_locally() const noexcept override { return true; }

 private:
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<LentPolicy> local_sgd(const PolicySettings& settings) {
  return std::make_unique<LocalSgd>(settings.every_steps);
}

}  // namespace troupe::policies
