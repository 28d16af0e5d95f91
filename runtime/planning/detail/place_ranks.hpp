#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Gives `ranks`, all of one host and in rank order, their CPU devices by placement.policy: cpus, device_threads,
/// may_spin, numa_nodes; and gives cores that placement.cores leaves to their lanes, if they have lanes. Then names an
/// accelerator near each rank, as long as there are some. Adds to `reasons` what is not obvious. Throws Error{invalid},
/// which names the constraint, if more is requested than exists, Error{environment} without cores.
void place_on_cores(const Settings::Placement& placement, const Topology& node, const std::string& host,
                    const std::vector<RankPlan*>& ranks, bool with_lanes, std::vector<std::string>& reasons);

}  // namespace troupe::detail
