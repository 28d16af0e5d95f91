#pragma once

#include <optional>
#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/config/config.hpp"
#include "runtime/data/find.hpp"
#include "tools/rtrun/cli.hpp"
#include "tools/rtrun/signals.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::rtrun {

/// Is one rank of a job, or with no `place` all of it, from joining to the end. `signals` is the thread that answers
/// them. Rank 0 shows the run on stdout and writes report.dir's page. Returns the exit code. Throws Error when
/// the job cannot start, or fails.
int run_rank(Blocking& blocking, SignalThread& signals, const CommandLine& line, const Configuration& configuration,
             const DataPlace& data, std::optional<LaunchPlace> place);

/// The page of a run.
std::string report_file(const Settings& settings);

}  // namespace troupe::rtrun
