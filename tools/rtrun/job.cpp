#include "tools/rtrun/job.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <fstream>

namespace troupe::rtrun {
namespace {

constexpr int kPeersLost = 4;

std::string cause_of(const RankEnd& end) {
  if (end.signal == 0 && end.exit_code > 128)
    return fmt::format("rank {} was stopped by {}", end.rank, signal_name(end.exit_code - 128));
  if (end.signal == 0) return fmt::format("rank {} failed with exit code {}", end.rank, end.exit_code);
  std::string text = fmt::format("rank {} (process {}) was killed by {}", end.rank, end.pid, signal_name(end.signal));
  if (end.signal == SIGKILL && end.out_of_memory)
    text += ": the kernel's memory killer was at work; give it more memory or lower data.batch";
  else if (end.signal == SIGKILL)
    text += ", sent by somebody or by a limit of the system; `dmesg` tells about the latter";
  else if (const char* description = ::sigdescr_np(end.signal))
    text += fmt::format(" ({})", description);
  return text;
}

}  // namespace

Verdict judge(const std::vector<RankEnd>& ends, int passed_on_signal) {
  const auto first = [&](auto matches) { return std::find_if(ends.begin(), ends.end(), matches); };
  const auto lost =
      first([&](const RankEnd& e) { return e.signal != 0 && e.signal != passed_on_signal && !e.by_launcher; });
  if (passed_on_signal != 0) {
    const auto preempted = [](const RankEnd& e) { return e.signal == 0 && e.exit_code == kPreempted; };
    Verdict verdict{
        !ends.empty() && std::all_of(ends.begin(), ends.end(), preempted) ? kPreempted : 128 + passed_on_signal,
        {},
        {}};
    if (lost != ends.end()) {
      verdict.text = cause_of(*lost);
      verdict.culprit = lost->rank;
    } else if (std::any_of(ends.begin(), ends.end(), [](const RankEnd& e) { return e.by_launcher; })) {
      verdict.text = "ranks that had not ended were killed";
    }
    return verdict;
  }
  if (lost != ends.end()) return {kPeersLost, cause_of(*lost), lost->rank};
  auto failed = first([](const RankEnd& e) { return !e.by_launcher && e.exit_code != 0 && e.exit_code != kPeersLost; });
  if (failed == ends.end()) failed = first([](const RankEnd& e) { return !e.by_launcher && e.exit_code != 0; });
  const auto stuck = first([](const RankEnd& e) { return e.by_launcher; });
  if (failed != ends.end() && failed->exit_code == kPeersLost && stuck != ends.end())
    return {kPeersLost, fmt::format("rank {} was lost by the others, did not end, and was killed", stuck->rank),
            stuck->rank};
  if (failed != ends.end()) return {failed->exit_code, cause_of(*failed), failed->rank};
  if (stuck != ends.end())
    return {1, fmt::format("rank {} did not end after the others had ended well, and was killed", stuck->rank),
            stuck->rank};
  return {};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::uint64_t count_memory_kills() {
  std::ifstream file{"/proc/vmstat"};
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return 0;
}

}  // namespace troupe::rtrun
