#pragma once

#include <span>
#include <string_view>

#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Gives each rank the network device of its node that is up, reaches the other nodes and is nearest to its cores or
/// its accelerator; if several are equally near, ranks share them. Makes no choice if nodes do not report NICs, or if
/// addresses do not show which NICs reach each other. `nodes`: the topology of each node of the plan. Throws
/// Error{invalid} for a node whose NICs are all down, and for "rdma" if a node has no RDMA device.
void choose_network(Plan& plan, std::string_view transport, std::span<const Topology* const> nodes);

}  // namespace troupe::detail
