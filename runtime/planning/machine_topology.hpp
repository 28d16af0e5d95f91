#pragma once

#include "runtime/planning/topology.hpp"
#include "runtime/topology/machine.hpp"

namespace troupe {

/// What a plan needs of a machine (a hello carries no more, and no accelerators): allowed cores, NUMA nodes, NICs,
/// caches, limits, GPUs. Where a file tells of processors but not of cores, each processor counts as a core. NICs are
/// interfaces, and RDMA devices without one; a virtual function whose physical function is there too is none. Of a
/// machine from a file the identity is empty, NICs have no addresses, and what is not known to be down is up.
Topology planning_topology(const topology::Machine& machine);

}  // namespace troupe
