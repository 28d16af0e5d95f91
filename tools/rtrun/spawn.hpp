#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/fd.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::rtrun {

/// A started rank: `pidfd` is readable once it has ended; `out` and `err` are its stdout and stderr, to be read without
/// waiting (`out` is none when the rank has the launcher's own stdout).
struct RankProcess {
  pid_t pid = -1;
  Fd pidfd;
  Fd out;
  Fd err;
};

/// What a rank is started with.
struct RankStart {
  std::vector<std::string> arguments;                            // argv, the program's name first
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of this process's own
  std::vector<int> inherited;  // descriptors that stay open in it, under their numbers
  bool own_stdout = true;      // piped to the launcher; false: the launcher's stdout
};

/// Starts this program again as one rank, in a process group of its own (a terminal's Ctrl-C reaches only the
/// launcher), bound to die with the calling process. Call from the main thread: a child's death signal follows the
/// thread that made it. Throws Error{environment} when the system has no process, pipe or descriptor left.
RankProcess spawn_rank(const Signals& signals, const RankStart& start);

/// A sealed memory file with `content`, which only this user's processes that inherit it can read; no name in any file
/// system. Throws Error{environment}.
Fd sealed_file(const std::string& content);

/// A socket that listens on a free loopback port, and the port. Throws Error{environment}.
std::pair<Fd, std::uint16_t> loopback_listener();

}  // namespace troupe::rtrun
