#pragma once

#include <ostream>

#include "runtime/config/config.hpp"
#include "runtime/data/find_data.hpp"

namespace troupe::rtrun {

/// Prints every setting in effect with its origin, as a table, and the data that a run would use.
void print_settings(const Configuration& configuration, const DataPlace& data, const HostList& hosts,
                    std::ostream& out);

}  // namespace troupe::rtrun
