#pragma once

#include "runtime/planning/topology.hpp"

namespace troupe {

/// Looks at this node: cores that this process may use, NUMA nodes, caches (hwloc), NICs of this network namespace
/// (sysfs and netlink), cgroup CPU quota, boot id and network namespace. Takes some milliseconds. Throws
/// Error{environment} when hwloc cannot.
Topology discover();
/// The same as discover().identity, without the rest.
NodeIdentity own_node_identity();

}  // namespace troupe
