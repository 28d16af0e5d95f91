#pragma once

#include <ostream>

#include "runtime/config/config.hpp"
#include "tools/rtrun/cli.hpp"

namespace troupe::rtrun {

/// Prints the plan of a run on this machine or on cluster.nodes. If the command line names machines or assumed numbers,
/// it is a plan for those. Also writes its picture if requested. Throws Error as the ranks would, and Error{invalid}
/// for options that contradict each other.
void print_plan(const CommandLine& line, const Configuration& configuration, std::ostream& out);

}  // namespace troupe::rtrun
