#include "runtime/exchange/policies/detail/policy_parts.hpp"

namespace troupe::policies {
namespace {

std::unique_ptr<RoundPolicy> make_diloco(const PolicySettings& settings, std::uint32_t ranks) {
  return local_blocks(settings, outer_rule(settings, ranks, 0));
}

constexpr PolicyReads kDilocoReads[] = {
    {&P::distributed_after}, {&P::every_steps, 500}, {&P::outer_momentum, 0.9}, {&P::outer_rate, 0.7}, {&P::nesterov}};

}  // namespace

/// Every H steps, the mean change of the ranks' weights is the gradient of an outer optimizer with Nesterov's momentum;
/// the rule of the steps in between keeps its state.
/// Source: Douillard et al. 2023 (DiLoCo: distributed low-communication training of language models), algorithm 1.
constinit const PolicyEntry diloco{
    .section = "diloco",
    .sent = "the changes of the weights",
    .when = "every `every_steps` steps, hundreds of them",
    .use_when = "networks between sites",
    .reads = kDilocoReads,
    .needs = {.own_weights = true, .held = true, .whole_state = true, .outer_state = true},
    .make = make_diloco,
    .describe = describe_outer};

}  // namespace troupe::policies
