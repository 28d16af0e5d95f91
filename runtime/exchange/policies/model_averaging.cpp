#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

// The default length of a block is CNTK's.
constexpr PolicyReads kModelAveragingReads[] = {{&P::distributed_after}, {&P::block_samples, 40000}};

}  // namespace

/// Every B samples of all ranks, the ranks' weights become their mean, weighted by the ranks' samples.
/// Source: McDonald, Hall, Mann 2010 (Distributed training strategies for the structured perceptron), section 4.
constinit const PolicyEntry model_averaging{.section = {},
                                            .sent = "the changes of the weights",
                                            .when = "every `block_samples` samples of all ranks",
                                            .use_when = "the same, with ranks of different speed",
                                            .reads = kModelAveragingReads,
                                            .needs = {.own_weights = true, .held = true, .whole_state = true},
                                            .make = averaged_blocks,
                                            .describe = describe_averaged,
                                            .check = check_block};

}  // namespace troupe::policies
