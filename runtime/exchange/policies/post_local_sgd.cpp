#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

constexpr PolicyReads kPostLocalSgdReads[] = {{&P::distributed_after}, {&P::every_steps, 8}};

std::string check_post_local_sgd(const PolicySettings& s, std::uint32_t, std::uint32_t) {
  if (s.distributed_after != 0) return {};
  return "post_local_sgd needs update.distributed_after, the samples after which ranks begin to work locally; from the "
         "first sample on, that is local_sgd";
}

}  // namespace

/// Local SGD after a synchronous start, which is a phase of its own (PolicySequence).
/// Source: Lin et al. 2018 (Don't use large mini-batches, use local SGD), post-local SGD.
constinit const PolicyEntry post_local_sgd{.section = {},
                                           .sent = "gradients, then the changes of the weights",
                                           .when = "as sync until `distributed_after`, then as local_sgd",
                                           .use_when = "the same, when training is sensitive at the start",
                                           .reads = kPostLocalSgdReads,
                                           .needs = {.own_weights = true, .held = true, .whole_state = true},
                                           .make = averaged_blocks,
                                           .describe = describe_averaged,
                                           .check = check_post_local_sgd};

}  // namespace troupe::policies
