#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe::rtrun {

/// How the process of one rank, or its remote shell, ended.
struct RankEnd {
  std::uint32_t rank = 0;
  std::string host;  // of the remote shell; empty: the rank was on this machine
  int pid = 0;
  int exit_code = 0;                     // valid if signal is 0
  int signal = 0;                        // the signal that killed it
  bool by_launcher = false;              // the launcher sent SIGKILL
  std::chrono::milliseconds stopped{0};  // how long it had been stopped when the launcher killed it for that
  bool out_of_memory = false;            // the kernel's memory killer was active meanwhile
};

/// The launcher's message and exit code at the end.
struct Verdict {
  int exit_code = 0;
  std::string text;                      // empty: there was no error
  std::optional<std::uint32_t> culprit;  // the rank that the text is about
};

/// Judges a job by its ranks' ends, in the order in which they were seen, and by the signal that the launcher passed on
/// (0: none). The culprit is the first rank killed by a signal that the launcher did not send or pass on; otherwise the
/// first that failed for another reason than the loss of a peer (4); otherwise the first that had to be killed (for
/// example because it was stopped); otherwise the first that failed. If a remote shell reports its own failure (255),
/// that is a failure of the environment (3), or, if other ranks have lost peers, a loss (4).
/// `dead_setting`: what sets how long a rank may be stopped; empty: nothing does.
Verdict judge(const std::vector<RankEnd>& ends, int passed_on_signal, std::string_view dead_setting = "faults.dead_ms");

/// The exit code of a run that SIGTERM ended and that can resume from a checkpoint.
inline constexpr int kPreempted = 75;
/// The exit code for the loss of a rank.
inline constexpr int kPeersLost = exit_code(Code::peer_lost);

/// Returns "SIGKILL" and the like.
std::string signal_name(int signal);

/// How many processes the kernel's memory killer has killed since the machine started; 0 if unknown.
std::uint64_t count_memory_kills();

}  // namespace troupe::rtrun
