#pragma once

#include "runtime/planning/topology.hpp"

namespace troupe {

/// Examines this node: cores that this process may use, NUMA nodes, caches (hwloc), NICs of this network namespace
/// (sysfs and netlink), cgroup CPU quota, boot id and network namespace. Takes some milliseconds. Throws
/// Error{environment} if hwloc fails.
Topology discover();
/// Only discover().identity, without the rest.
NodeIdentity own_node_identity();

}  // namespace troupe
