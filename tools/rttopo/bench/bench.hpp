#pragma once

#include <optional>
#include <ostream>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/measurements.hpp"
#include "tools/rttopo/cli.hpp"

namespace troupe::rttopo {

/// `rttopo bench`: measures this host. As one rank of a job that a launcher or --hosts started, it also measures the
/// paths between nodes. Writes the figures and prints them; progress goes to stderr. Returns the exit code: 128 + n
/// after signal n, when nothing was written. Call it before any thread is started.
int bench(const CommandLine& line, std::ostream& out);

/// Runs a process that measure_messages_here() or measure_gpus() started; `line` is the socket to the process that
/// started it.
void be_bench_member(Blocking& blocking, int line);

/// The machines of a run's nodes, which the run's ranks examine now; `folder` is the run's (report.dir). Throws
/// Error{environment} if no run of this user listens there, or if it does not answer.
std::vector<Node> nodes_of_run(Blocking& blocking, const std::string& folder);

}  // namespace troupe::rttopo
