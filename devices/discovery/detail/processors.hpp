#pragma once

#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Fills in cores, NUMA nodes, caches and the processor's name as hwloc tells; cores are those that the control group
/// and the process's affinity allow. Throws Error{environment} when hwloc cannot.
void add_processors(Topology& topology);

}  // namespace troupe::detail
