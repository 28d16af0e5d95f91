#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::rtrun {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// What a command on another machine consists of.
struct RemoteCommand {
  std::string folder;                  // where it runs
  Environment environment;             // seen by everybody on that machine: nothing secret
  std::vector<std::string> arguments;  // argv, the program's path first
};

/// As one line for whatever shell a user has there (sh, csh and fish quote alike): `cd FOLDER && exec env A=b PROGRAM
/// ...`.
std::string command_line(const RemoteCommand& command);

/// argv of a shell on this machine that runs `remote_shell HOST LINE`; remote_shell is words of that shell.
std::vector<std::string> remote_shell_arguments(const std::string& remote_shell, const std::string& host,
                                                const std::string& line);

/// What ranks on other machines get of this process's environment: UCX_*, OMP_*, GOMP_* and TROUPE_*, but for a
/// secret's file and a descriptor's number.
Environment passed_environment();

/// The folder in which this process runs, by the name that the user's shell has for it.
std::string working_folder();
/// The path of this program. Throws Error{environment}.
std::string own_program();

}  // namespace troupe::rtrun
