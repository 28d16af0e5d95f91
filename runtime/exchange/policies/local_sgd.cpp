#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

constexpr PolicyReads kLocalSgdReads[] = {{&P::distributed_after}, {&P::every_steps, 8}};

}  // namespace

/// Every H steps the ranks' weights become their mean.
/// Source: Stich 2018 (Local SGD converges fast and communicates little), algorithm 1.
constinit const PolicyEntry local_sgd{.section = "local_sgd-post_local_sgd-model_averaging",
                                      .sent = "the changes of the weights",
                                      .when = "every `every_steps` steps",
                                      .use_when = "the network is several times too slow for sync",
                                      .reads = kLocalSgdReads,
                                      .needs = {.own_weights = true, .held = true, .whole_state = true},
                                      .make = averaged_blocks,
                                      .describe = describe_averaged};

}  // namespace troupe::policies
