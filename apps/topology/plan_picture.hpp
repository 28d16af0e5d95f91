#pragma once

#include <span>
#include <string>

#include "runtime/planning/plan.hpp"
#include "runtime/planning/rank_orders.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// A plan as an SVG: nodes with their NUMA nodes; memory and cores in the colours of the ranks that use them; GPUs and
/// NICs beside the ranks that are near them or use them; and links to the network, the slowest edge of the ring in red.
/// Of large plans only the first nodes are drawn; the others are counted. `topologies`: of each node of the plan. It
/// needs no other file, and follows the reader's light or dark scheme.
std::string plan_picture(const Plan& plan, std::span<const Topology* const> topologies, const RankOrders& orders);

}  // namespace troupe
