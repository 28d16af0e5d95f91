#pragma once

#include <cstdint>
#include <span>

#include "runtime/config/settings.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Compares the memory that ranks need with the memory that exists, and writes both into the plan's nodes. `nodes`: the
/// topology of each node of the plan; `used`: bytes by rank, each byte counted for one rank only. If a NUMA node has
/// too little for the ranks that only it serves, placement.policy = "auto" lets them use memory of any node. Throws
/// Error{invalid} if a host has too little, or, under other policies, a NUMA node.
void fit_memory(Plan& plan, const Settings::Placement& placement, std::span<const Topology* const> nodes,
                std::span<const std::uint64_t> used);

}  // namespace troupe::detail
