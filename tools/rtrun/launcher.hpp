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
  std::vector<RankSite> sites;            // by rank
  std::vector<std::string> arguments;     // argv of this program; every rank gets the same
  std::vector<std::string> program{};     // argv of a program that each rank is instead; empty: none
  std::string remote_shell = "ssh";       // cluster.remote_shell
  std::uint16_t port = 0;                 // cluster.port
  std::chrono::milliseconds stop{10000};  // how long ranks may take to end after the first signal (faults.stop_s)
  std::chrono::milliseconds dead{10000};  // how long a rank here may be stopped while others go on (faults.dead_ms)
  std::chrono::milliseconds idle{30000};  // how long ranks may go on after one has ended well (faults.exchange_s)
  std::string log_folder;  // where rank-N.log of each rank N > 0 goes, if it writes anything; empty: nowhere
  /// Told what went wrong with the job, and its exit code, once it is over; may be null.
  std::function<void(const std::string& what, int exit_code)> failed{};
};

/// Starts this program, or `program`, once per rank and waits for all of them; on other hosts by the remote shell, in
/// this folder under its path, with the job's secret on stdin, which stays open: signals go that way, and its end ends
/// the rank. Rank 0 has stdout, what else it prints goes to stderr with "[rank 0] " before each line, as does what the
/// others print; with a log folder only their lines that begin with "rtrun: " do, and all of their lines go into their
/// files. The first failure is repeated last. The first signal is passed on and ranks have `stop` to end; a second one
/// kills them. SIGUSR1 is only passed on, every time, and not to a `program`, which it might end. When a rank is lost
/// the others have a moment to say what they saw and are then killed. Nothing is left when it returns, on other hosts
/// soon after. A rank here that is stopped, by SIGSTOP say, is told of and lost soon after `dead`, unless all are: the
/// others, where they have met, notice first. Returns the exit code of the job: 128 + signal when one came; 4 when a
/// rank was killed by a signal that is not ours; otherwise that of the first rank that failed. Throws
/// Error{environment} when a rank cannot be started.
int launch(Blocking& blocking, const Signals& signals, const LaunchOptions& options);

}  // namespace troupe::rtrun
