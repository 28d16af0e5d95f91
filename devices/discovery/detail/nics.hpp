#pragma once

#include <vector>

#include "runtime/planning/topology.hpp"

namespace troupe::detail {

/// The network interfaces of this thread's network namespace, by name. `numa` must be known already. What /sys tells is
/// taken only where it shows the same namespace.
std::vector<Nic> find_nics(const std::vector<NumaNode>& numa);

}  // namespace troupe::detail
