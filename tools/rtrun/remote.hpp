#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::rtrun {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// A command for another machine.
struct RemoteCommand {
  std::string folder;                  // where it runs
  Environment environment;             // all users of that machine can see it: it contains nothing secret
  std::vector<std::string> arguments;  // argv, the program's path first
};

/// The command as one line for any shell that a user may have there (sh, csh and fish quote in the same way): `cd
/// FOLDER && exec env A=b PROGRAM ...`.
std::string command_line(const RemoteCommand& command);

/// argv of a shell on this machine that runs `remote_shell HOST LINE`; that shell splits remote_shell into words.
std::vector<std::string> remote_shell_arguments(const std::string& remote_shell, const std::string& host,
                                                const std::string& line);

/// What ranks on other machines get of this process's environment: UCX_*, OMP_*, GOMP_* and TROUPE_*, but for a
/// secret's file and a descriptor's number.
Environment passed_environment();

/// The folder in which this process runs, under the name that the user's shell uses.
std::string working_folder();
/// The path of this program. Throws Error{environment}.
std::string own_program();

}  // namespace troupe::rtrun
