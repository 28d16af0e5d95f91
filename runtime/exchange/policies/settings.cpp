#include "runtime/exchange/policies/policy_entry.hpp"

namespace troupe {
namespace {

using P = PolicySettings;

constexpr double kMostSamples = 9e18;
constexpr double kMostSteps = 1 << 30;

constexpr PolicySetting kSettings[] = {
    {"update.distributed_after",
     &P::distributed_after,
     {0, kMostSamples},
     "number of samples, over all ranks, after which the policy begins; until then the group is synchronous",
     "24000",
     "A synchronous start: the policy then begins with weights that are already partly trained. 0: the policy begins "
     "with the first step."},
    {"update.accumulate",
     &P::accumulate,
     {1, 1 << 20},
     "number of steps whose gradients are added up to one update",
     "4",
     "As if the batch were that many times larger, without the memory that it would take."},
    {"update.every_steps",
     &P::every_steps,
     {0, kMostSteps},
     "number of steps of each rank from one round to the next",
     "8"},
    {"update.block_samples",
     &P::block_samples,
     {0, kMostSamples},
     "number of samples, over all ranks, from one round to the next",
     "2400",
     "A block ends with the first step that fills it."},
    {"update.rule",
     &P::block_rule,
     {},
     "which formula block_momentum follows",
     "\"paper\"",
     "paper: Chen and Huo 2016. cntk: CNTK's learner, whose rate and momentum follow the block's size."},
    {"update.outer_momentum", &P::outer_momentum, {-1, 0.999999}, "momentum of the outer update; below 1", "0.75"},
    {"update.time_constant",
     &P::time_constant,
     {0, kMostSamples},
     "samples after which the outer momentum has faded to 1/e",
     "50000",
     "Replaces outer_momentum, which becomes exp(-block / time_constant). 0: not used."},
    {"update.outer_rate", &P::outer_rate, {0, 1000}, "learning rate of the outer update", "0.7"},
    {"update.nesterov", &P::nesterov, {}, "whether the outer update uses Nesterov's momentum", "false"},
    {"update.reset_momentum",
     &P::reset_momentum,
     {},
     "whether the optimizer's state is cleared after each block",
     "false"},
    {"update.staleness",
     &P::staleness,
     {0, 1 << 20},
     "number of steps that a rank may be ahead of the slowest one",
     "3",
     "0: as sync, but through the shards."},
    {"update.divide_by_staleness",
     &P::divide_by_staleness,
     {},
     "whether the learning rate of an update is lowered when its gradient is late",
     "true",
     "The learning rate is divided by 1 + the number of updates since the parameters for this gradient were read."},
    {"update.ramp_from",
     &P::ramp_from,
     {1e-6, 1},
     "factor on the learning rate of a rank's first updates",
     "0.2",
     "The factor grows by ramp_by after every ramp_every updates of that rank, up to 1. 1: no ramp."},
    {"update.ramp_by", &P::ramp_by, {1e-6, 1}, "how much the ramp's factor grows each time", "0.2"},
    {"update.ramp_every",
     &P::ramp_every,
     {1, kMostSteps},
     "number of a rank's updates after which the ramp's factor grows",
     "600"},
    {"update.elasticity",
     &P::elasticity,
     {0, 1},
     "how far a rank and the center move toward each other, as a fraction of their distance",
     "0.2",
     "At most 1 / ranks."},
};

}  // namespace

std::span<const PolicySetting> policy_settings() noexcept { return kSettings; }

}  // namespace troupe
