#pragma once

#include <string>
#include <vector>

#include "runtime/planning/planner.hpp"

namespace troupe::detail {

/// The levels of the exchange of all groups, by cluster.collectives and the ranks' devices. Reads nodes, ranks, groups'
/// policies and compression, and gathered bytes of the plan; sets `nccl_adds`. Adds to the plan's reasons why ranks on
/// GPUs do not use NCCL. Throws Error{invalid} or Error{environment} where NCCL is wanted and cannot be used.
std::vector<ExchangeLevel> choose_levels(Plan& plan, const Settings& settings, const PlanInputs& inputs);

}  // namespace troupe::detail
