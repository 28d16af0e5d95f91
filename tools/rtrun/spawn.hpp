#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/fd.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::rtrun {

/// A started rank, or the remote shell of one: `pidfd` is readable once it has ended; `out` and `err` are its stdout
/// and stderr, to be read without waiting (`out` is none when it has the launcher's own stdout); `in` is its stdin, to
/// be written without waiting, if that is the launcher's.
struct RankProcess {
  pid_t pid = -1;
  Fd pidfd;
  Fd in;
  Fd out;
  Fd err;
};

/// What a rank is started with.
struct RankStart {
  std::vector<std::string> arguments;                            // argv, the program's name first
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of this process's own
  std::vector<int> inherited;              // descriptors that stay open in it, under their numbers
  bool own_stdout = true;                  // piped to the launcher; false: the launcher's stdout
  bool own_stderr = true;                  // the same of stderr
  bool null_stdin = false;                 // /dev/null instead of the launcher's
  std::string program = "/proc/self/exe";  // this one again
  bool own_program = true;                 // false: signals are as for any program, SIGPIPE and SIGUSR1 too
  bool remote = false;  // a remote shell: stdin from the launcher, and no terminal that it could ask anything
};

/// Starts a rank or a remote shell, in a process group of its own (a terminal's Ctrl-C reaches only the
/// launcher), bound to die with the calling process. Call from the main thread: a child's death signal follows the
/// thread that made it. Throws Error{environment} when the system has no process, pipe or descriptor left.
RankProcess spawn_rank(const Signals& signals, const RankStart& start);

/// Variables for the libraries of a rank, which read them when they are loaded; without those that this process's
/// environment decides.
std::vector<std::pair<std::string, std::string>> library_habits();

/// A sealed memory file with `content`, which only this user's processes that inherit it can read; no name in any file
/// system. Throws Error{environment}.
Fd sealed_file(const std::string& content);

}  // namespace troupe::rtrun
