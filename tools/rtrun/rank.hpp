#pragma once

#include <optional>

#include "runtime/blocking.hpp"
#include "runtime/config.hpp"
#include "runtime/data/find.hpp"
#include "tools/rtrun/cli.hpp"
#include "tools/rtrun/signals.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::rtrun {

/// Is one rank of a job, or with no `place` all of it, from joining to the end. `signals` is the thread that answers
/// them. Returns the exit code; says on stderr what went wrong on the way. Throws Error when the job cannot start.
int run_rank(Blocking& blocking, SignalThread& signals, const CommandLine& line, const Configuration& configuration,
             const DataPlace& data, std::optional<LaunchPlace> place);

}  // namespace troupe::rtrun
