#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/rtrun/signals.hpp"
#include "tools/rtrun/sites.hpp"

namespace troupe::rtrun {

struct LaunchOptions {
  std::vector<RankSite> sites;         // by rank
  std::vector<std::string> arguments;  // argv of this program, the same for every rank
  std::string name = "rtrun";          // of this program: its lines begin with it, and so do those of its ranks
  std::string dead_setting = "faults.dead_ms";  // what sets `dead`, for messages; empty: nothing does
  std::string rank_program{};                   // path of what runs as a rank here; empty: this program
  std::vector<std::string> program{};           // argv of a program to run as each rank instead; empty: none
  std::string remote_shell = "ssh";             // cluster.remote_shell
  std::uint16_t port = 0;                       // cluster.port
  std::chrono::milliseconds stop{10000};        // how long ranks may take to end after the first signal (faults.stop_s)
  std::chrono::milliseconds dead{10000};        // how long a rank here may be stopped while others run (faults.dead_ms)
  std::chrono::milliseconds idle{30000};        // how long ranks may run after one has ended well (faults.exchange_s)
  std::string log_folder;  // for rank-N.log of each rank N > 0 that writes anything; empty: no logs
  /// Called with the error of the job, and its exit code, at the end; may be null.
  std::function<void(const std::string& what, int exit_code)> failed{};
};

/// Starts this program, `rank_program` or `program` once per rank and waits for all of them. On other hosts it uses the
/// remote shell: the rank runs in this folder under its path, with the job's secret on stdin. Its stdin stays open:
/// signals are sent through it, and when it closes, the rank ends. Rank 0 has the launcher's stdout. Its other output
/// goes to stderr with "[rank 0] " before each line, as does the output of the other ranks; with a log folder only
/// their lines that begin with `name` do, and all their lines are written to their logs. The first failure is repeated
/// at the end. The first signal is passed on, and ranks have `stop` to end; a second one kills them. SIGUSR1 is only
/// passed on, every time, but not to a `program`, which it might end. SIGTSTP (Ctrl-Z) stops all ranks and this
/// process, and they continue with it; if there are ranks on other hosts, it stops only this process. When a rank is
/// lost the others have a moment to report it and are then killed. Nothing is left running when it returns; on other
/// hosts soon after. If a rank on this machine is stopped, for example by SIGSTOP, this is reported, and soon after
/// `dead` it counts as lost, unless all ranks are stopped; ranks that are connected notice it first. Returns the exit
/// code of the job: 128 + signal if one came; 4 if a rank was killed by a signal that the launcher did not send;
/// otherwise that of the first rank that failed. Throws Error{environment} if a rank cannot be started.
int launch(Blocking& blocking, const Signals& signals, const LaunchOptions& options);

}  // namespace troupe::rtrun
