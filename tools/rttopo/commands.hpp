#pragma once

#include <ostream>

#include "tools/rttopo/cli.hpp"

namespace troupe::rttopo {

/// Executes the command line and prints on `out`; returns the exit code. `color`: `out` is a terminal that shows
/// colours. Throws Error{invalid} for a bad file or part; Error{environment}.
int run(const CommandLine& line, std::ostream& out, bool color);

/// `rttopo env`.
int print_environment(bool json, std::ostream& out);

}  // namespace troupe::rttopo
