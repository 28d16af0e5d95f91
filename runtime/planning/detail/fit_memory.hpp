#pragma once

#include <cstdint>
#include <span>

#include "runtime/config/settings.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Compares what ranks take with what is there, and notes both in the plan's nodes. `nodes`: the topology of each node
/// of the plan; `used`: bytes by rank, each counted for one rank only. Where a NUMA node has too little for the ranks
/// that it is to serve alone, placement.policy = "auto" lets them take memory from anywhere. Throws Error{invalid} when
/// a host, or under other policies a NUMA node, has too little.
void fit_memory(Plan& plan, const Settings::Placement& placement, std::span<const Topology* const> nodes,
                std::span<const std::uint64_t> used);

}  // namespace troupe::detail
