#include "runtime/policies/detail/lent_policies.hpp"

namespace troupe::policies {
namespace {

/// Every H steps, the mean of what the ranks' weights have moved is the gradient of an outer optimizer with Nesterov's
/// momentum; the rule of the steps between keeps its state.
/// Source: Douillard et al. 2023 (DiLoCo: distributed low-communication training of language models), algorithm 1.
class DiLoCo final : public LentPolicy {
 public:
  explicit DiLoCo(const PolicySettings& settings)
      : outer_(outer_rule(settings, 1, 0)), blocks_(settings.every_steps, 0) {}
  StepOrders next(const StepFacts& facts) override {
    return local_step(blocks_.count(facts) ? std::optional{outer_} : std::nullopt);
  }
  bool works_locally() const noexcept override { return true; }

 private:
  const Rule outer_;
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<LentPolicy> diloco(const PolicySettings& settings) { return std::make_unique<DiLoCo>(settings); }

}  // namespace troupe::policies
