#pragma once

#include <string>
#include <vector>

#include "tools/rtrun/cli.hpp"

// rtrun is two programs with the same main(). `rtrun` itself (rtrun.cpp) answers questions and launches ranks; it links
// no library that only ranks need (CAF, oneDNN, UCX, PMIx, OpenSSL), since loading those takes most of the time of a
// start. `rtrun-rank` (rtrun_rank.cpp), in the same folder, is one rank of a job.
namespace troupe::rtrun {

/// Does what the command line says, which each of the two programs defines for itself. `arguments`: all words of the
/// command line, the program's name first. Returns the exit code. Throws Error.
int run(const CommandLine& line, const std::vector<std::string>& arguments);

/// The exit code of a verb whose result is what it prints. Throws Error{environment} if stdout cannot be written.
int printed(int exit_code = 0);

}  // namespace troupe::rtrun
