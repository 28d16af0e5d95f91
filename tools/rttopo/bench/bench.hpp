#pragma once

#include <optional>
#include <ostream>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/measurements.hpp"
#include "tools/rttopo/cli.hpp"

namespace troupe::rttopo {

/// `rttopo bench`: measures this host, or as one rank of a job that a launcher or --hosts started also the ways between
/// its nodes, writes the figures and prints them; what is under way goes to stderr. Returns the exit code: 128 + n
/// after signal n, when nothing was written. Call it before any thread is started.
int bench(const CommandLine& line, std::ostream& out);

/// The life of a process that measure_messages_here() started; `line` leads to who did.
void be_message_end(Blocking& blocking, int line);

/// The machines of a run's nodes, whose ranks look when they are asked; `folder` is the run's (report.dir). Throws
/// Error{environment} when no run of this user listens there, or gives no answer.
std::vector<Node> nodes_of_run(Blocking& blocking, const std::string& folder);

}  // namespace troupe::rttopo
