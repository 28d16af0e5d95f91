#pragma once

#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// Fills in cores, NUMA nodes, caches and the processor's name from hwloc; cores are those that the control group and
/// the process's affinity allow. Throws Error{environment} if hwloc fails.
void add_processors(Topology& topology);

}  // namespace troupe::detail
