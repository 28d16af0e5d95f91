#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {

/// Every H steps the ranks' weights become their mean.
/// Source: Stich 2018 (Local SGD converges fast and communicates little), algorithm 1; after a synchronous start: Lin
/// et al. 2018 (Don't use large mini-batches, use local SGD), post-local SGD.
std::unique_ptr<RoundPolicy> local_sgd(const PolicySettings& settings) {
  return local_blocks({settings.every_steps, 0}, averaging_rule());
}

}  // namespace troupe::policies
