#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/fd.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::rtrun {

/// A started rank, or its remote shell: `pidfd` is readable when it has ended. `out` and `err` are its stdout and
/// stderr, for reading without waiting (`out` is empty if it has the launcher's own stdout). `in` is its stdin, for
/// writing without waiting, if the launcher provides it.
struct RankProcess {
  pid_t pid = -1;
  Fd pidfd;
  Fd in;
  Fd out;
  Fd err;
};

/// How to start a rank.
struct RankStart {
  std::vector<std::string> arguments;                            // argv, the program's name first
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's own
  std::vector<int> inherited;                                    // descriptors that it keeps open, under their numbers
  bool own_stdout = true;                                        // piped to the launcher; false: the launcher's stdout
  bool own_stderr = true;                                        // the same for stderr
  bool null_stdin = false;                                       // /dev/null instead of the launcher's
  std::string program = "/proc/self/exe";                        // this program
  bool own_program = true;  // false: it gets signals as any program does, including SIGPIPE and SIGUSR1
  bool remote = false;      // a remote shell: stdin from the launcher, and no terminal for questions
};

/// Starts a rank or a remote shell in its own process group (Ctrl-C in a terminal then reaches only the launcher). It
/// is killed when the calling process dies. Call it from the main thread: a child's death signal depends on the thread
/// that created it. Throws Error{environment} if the system has no process, pipe or descriptor left.
RankProcess spawn_rank(const Signals& signals, const RankStart& start);

/// Variables for the libraries of a rank, which read them when they are loaded; without those that this process's
/// environment decides.
std::vector<std::pair<std::string, std::string>> library_habits();

/// A sealed memory file with `content`, which only this user's processes that inherit it can read; no name in any file
/// system. Throws Error{environment}.
Fd sealed_file(const std::string& content);

}  // namespace troupe::rtrun
