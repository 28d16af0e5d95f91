#pragma once

#include <vector>

#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// The network interfaces of this thread's network namespace, by name. `numa` must be filled in before. The data of
/// /sys is used only if /sys shows the same namespace.
std::vector<Nic> find_nics(const std::vector<NumaNode>& numa);

}  // namespace troupe::detail
