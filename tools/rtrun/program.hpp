#pragma once

#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/rtrun/signals.hpp"
#include "transports/bootstrap/bootstrap.hpp"

// Ranks that are a program of the user's own with a session in it: `rtrun app.toml -- ./program arguments`.
namespace troupe::rtrun {

/// The file that a shell would run for this name: what stands there when it has a slash in it, otherwise the first one
/// in PATH. Throws Error{invalid} when there is none, or it cannot be executed.
std::string find_program(const std::string& name);

/// Throws Error{invalid} when one of "a.b=c" is a setting that only the program itself can follow: the launcher reads
/// [cluster], [faults] and [report] alone.
void check_launcher_settings(const std::vector<std::string>& overrides);

/// Runs the program as the rank `place` on a machine to which a launcher came by a remote shell, passes signals on to
/// it and waits for its end. It gets the secret in a file of memory, /dev/null as stdin, and this process's stdout and
/// stderr. Returns its exit code, 128 + signal when one killed it. Throws Error{environment} when it cannot be started.
int run_program(Blocking& blocking, const Signals& signals, const LaunchPlace& place,
                const std::vector<std::string>& program);

}  // namespace troupe::rtrun
