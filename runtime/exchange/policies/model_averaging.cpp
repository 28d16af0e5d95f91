#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe::policies {

/// Every B samples of all ranks, the ranks' weights become their mean, each counting by its samples.
/// Source: McDonald, Hall, Mann 2010 (Distributed training strategies for the structured perceptron), section 4.
std::unique_ptr<RoundPolicy> model_averaging(const PolicySettings& settings) {
  return local_blocks({0, settings.block_samples}, averaging_rule());
}

}  // namespace troupe::policies
