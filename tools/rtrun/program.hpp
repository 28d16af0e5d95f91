#pragma once

#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/rtrun/signals.hpp"
#include "transports/bootstrap/bootstrap.hpp"

// Ranks that are a program of the user's with a session in it: `rtrun app.toml -- ./program arguments`.
namespace troupe::rtrun {

/// The file that a shell would execute for this name: the path itself if it contains a slash, otherwise the first match
/// in PATH. Throws Error{invalid} if there is none, or if it cannot be executed.
std::string find_program(const std::string& name);

/// Throws Error{invalid} if one of "a.b=c" is a setting that only the program itself can apply: the launcher reads only
/// [cluster], [faults] and [report].
void check_launcher_settings(const std::vector<std::string>& overrides);

/// Runs the program as the rank `place` on a machine on which a launcher started this process by a remote shell, passes
/// signals on to it and waits for its end. It gets the secret in a memory file, /dev/null as stdin, and this process's
/// stdout and stderr. Returns its exit code, or 128 + signal if one killed it. Throws Error{environment} if it cannot
/// be started.
int run_program(Blocking& blocking, const Signals& signals, const LaunchPlace& place,
                const std::vector<std::string>& program);

}  // namespace troupe::rtrun
