#pragma once

#include "runtime/planning/topology.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe {

/// The part of a machine that a plan needs (a hello contains no more): allowed cores, NUMA nodes,
/// NICs, caches, limits, GPUs. A processor counts as a core if a file lists no cores. NICs are interfaces, and RDMA
/// devices without one; a virtual function is left out if its physical function is there. From a file, the identity is
/// empty, NICs have no addresses, and a NIC that is not known to be down is up.
Topology planning_topology(const topology::Machine& machine);

}  // namespace troupe
