#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::rtrun {

/// How one rank's process ended, or the remote shell of one.
struct RankEnd {
  std::uint32_t rank = 0;
  std::string host;  // that the remote shell led to; empty: the rank was here
  int pid = 0;
  int exit_code = 0;                     // when signal is 0
  int signal = 0;                        // it was killed by
  bool by_launcher = false;              // the launcher sent SIGKILL
  std::chrono::milliseconds stopped{0};  // for which it had been when the launcher sent SIGKILL for that
  bool out_of_memory = false;            // the kernel's memory killer was busy meanwhile
};

/// What the launcher says and returns at the end.
struct Verdict {
  int exit_code = 0;
  std::string text;                      // empty: nothing went wrong
  std::optional<std::uint32_t> culprit;  // the rank that the text is about
};

/// Judges a job from its ranks' ends in the order in which they were seen, and the signal (0: none) that the launcher
/// passed on. The culprit is the first rank killed by a foreign signal, else the first that failed for another reason
/// than the loss of a peer (4), else the first that had to be killed (it was stopped, say), else the first that failed.
/// A remote shell that says itself that it failed (255) is an environment's failure (3), or once others have lost peers
/// a loss (4).
Verdict judge(const std::vector<RankEnd>& ends, int passed_on_signal);

/// The exit code of a run that SIGTERM ended with a checkpoint to go on from.
inline constexpr int kPreempted = 75;
/// A rank was lost.
inline constexpr int kPeersLost = 4;

/// SIGKILL
std::string signal_name(int signal);

/// How many processes the kernel's memory killer has killed since the machine started; 0 when it does not say.
std::uint64_t count_memory_kills();

}  // namespace troupe::rtrun
