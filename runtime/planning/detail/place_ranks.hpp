#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Gives `ranks`, all of one node and in rank order, their CPU devices: cpus, device_threads, may_spin; and, of what
/// placement.cores leaves, cores to their lanes, if they have any. Adds to `reasons` what is not obvious. Throws
/// Error{invalid} when placement.cores asks for more than there is, Error{environment} without cores.
void place_on_cores(const Settings::Placement& placement, const Topology& node, const std::string& host,
                    const std::vector<RankPlan*>& ranks, bool with_lanes, std::vector<std::string>& reasons);

}  // namespace troupe::detail
