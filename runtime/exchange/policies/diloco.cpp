#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {

/// Every H steps, the mean of what the ranks' weights have moved is the gradient of an outer optimizer with Nesterov's
/// momentum; the rule of the steps between keeps its state.
/// Source: Douillard et al. 2023 (DiLoCo: distributed low-communication training of language models), algorithm 1.
std::unique_ptr<RoundPolicy> diloco(const PolicySettings& settings) {
  return local_blocks({settings.every_steps, 0}, outer_rule(settings, 1, 0));
}

}  // namespace troupe::policies
