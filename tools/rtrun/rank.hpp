#pragma once

#include <optional>

#include "runtime/base/blocking.hpp"
#include "runtime/config/config.hpp"
#include "runtime/data/find_data.hpp"
#include "tools/rtrun/cli.hpp"
#include "tools/rtrun/signals.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::rtrun {

/// Runs one rank of a job, or without a `place` the whole job, from joining to the end. `signals` is the thread that
/// answers signals. Rank 0 shows the run on stdout and writes the page to report.dir. Returns the exit code. Throws
/// Error if the job cannot start, or fails.
int run_rank(Blocking& blocking, SignalThread& signals, const CommandLine& line, const Configuration& configuration,
             const DataPlace& data, std::optional<LaunchPlace> place);

}  // namespace troupe::rtrun
