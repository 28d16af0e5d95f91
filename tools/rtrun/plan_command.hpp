#pragma once

#include <ostream>

#include "runtime/config/config.hpp"
#include "tools/rtrun/cli.hpp"

namespace troupe::rtrun {

/// Prints the plan of a run on this machine or on cluster.nodes, or, where the command line names machines or imagines
/// numbers, of one on those; writes its picture if that is asked for. Throws Error as the ranks would, and
/// Error{invalid} for what does not fit together.
void print_plan(const CommandLine& line, const Configuration& configuration, std::ostream& out);

}  // namespace troupe::rtrun
