#include "tools/rtrun/job.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <fstream>

namespace troupe::rtrun {
namespace {

constexpr int kEnvironment = exit_code(Code::environment);
constexpr int kShellFailed = 255;    // exit code of ssh for its own failures
constexpr int kNotExecutable = 126;  // exit code of a shell
constexpr int kNotFound = 127;

std::string name_of(const RankEnd& end) {
  return end.host.empty() ? fmt::format("rank {}", end.rank) : fmt::format("rank {} on {}", end.rank, end.host);
}

/// The shell's process is on this machine, the rank is not.
std::string cause_of_remote(const RankEnd& end) {
  if (end.signal != 0)
    return fmt::format("the remote shell of {} (process {}) was killed by {}", name_of(end), end.pid,
                       signal_name(end.signal));
  if (end.exit_code == kShellFailed)
    return fmt::format(
        "the remote shell of {} failed: {} cannot be reached or refuses the login, or the connection "
        "broke; try cluster.remote_shell with {} by hand",
        name_of(end), end.host, end.host);
  return fmt::format(
      "{} failed with exit code {}: its command cannot be run there; rtrun and the folder must have the "
      "same path on every host, and cluster.remote_shell must be a program here",
      name_of(end), end.exit_code);
}

std::string cause_of(const RankEnd& end) {
  const bool never_ran = end.exit_code == kNotExecutable || end.exit_code == kNotFound;
  if (!end.host.empty() && (end.signal != 0 || end.exit_code == kShellFailed || never_ran)) return cause_of_remote(end);
  if (end.signal == 0 && end.exit_code == kPreempted)
    return fmt::format("{} ended with exit code {}: SIGTERM ended it, and the job's state is saved", name_of(end),
                       end.exit_code);
  if (end.signal == 0 && end.exit_code > 128)
    return fmt::format("{} was stopped by {}", name_of(end), signal_name(end.exit_code - 128));
  if (end.signal == 0) return fmt::format("{} failed with exit code {}", name_of(end), end.exit_code);
  std::string text = fmt::format("rank {} (process {}) was killed by {}", end.rank, end.pid, signal_name(end.signal));
  if (end.signal == SIGKILL && end.out_of_memory)
    text += ": the kernel's memory killer was at work; give it more memory or lower data.batch";
  else if (end.signal == SIGKILL)
    text += ", sent by a person or because of a limit of the system; `dmesg` shows the latter";
  else if (const char* description = ::sigdescr_np(end.signal))
    text += fmt::format(" ({})", description);
  return text;
}

/// Whether something other than the launcher killed it. A remote shell reports its command's signal as 128 + signal.
bool was_killed(const RankEnd& end, int passed_on_signal) {
  const bool there = !end.host.empty() && end.exit_code > 128 && end.exit_code != kShellFailed;
  const int signal = there ? end.exit_code - 128 : end.signal;
  return signal != 0 && signal != passed_on_signal && !end.by_launcher;
}

constexpr std::size_t kMostNamed = 16;

/// Returns "; so were rank 2 (process 12) by SIGKILL and rank 5 (process 15) by SIGBUS", for all killed ranks except
/// `first`.
std::string also_killed(const RankEnd& first, const std::vector<RankEnd>& ends, int passed_on_signal) {
  std::vector<const RankEnd*> others;
  for (const RankEnd& end : ends)
    if (&end != &first && was_killed(end, passed_on_signal)) others.push_back(&end);
  if (others.empty()) return {};
  std::sort(others.begin(), others.end(), [](const RankEnd* a, const RankEnd* b) { return a->rank < b->rank; });
  std::string text = others.size() == 1 ? "; so was " : "; so were ";
  const std::size_t named = std::min(others.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) {
    const RankEnd& end = *others[i];
    text += i == 0 ? "" : i + 1 == others.size() ? " and " : ", ";
    const std::string process = end.host.empty() ? fmt::format(" (process {})", end.pid) : "";
    text += fmt::format("{}{} by {}", name_of(end), process,
                        signal_name(end.signal != 0 ? end.signal : end.exit_code - 128));
  }
  if (others.size() > named) text += fmt::format(", and {} more", others.size() - named);
  return text;
}

/// The exit code of a job that failed first at `failed`.
int exit_code_of(const RankEnd& failed, const std::vector<RankEnd>& ends) {
  if (failed.host.empty() || failed.exit_code != kShellFailed) return failed.exit_code;
  const auto lost_a_peer = [](const RankEnd& e) { return e.signal == 0 && e.exit_code == kPeersLost; };
  return std::any_of(ends.begin(), ends.end(), lost_a_peer) ? kPeersLost : kEnvironment;
}

}  // namespace

Verdict judge(const std::vector<RankEnd>& ends, int passed_on_signal, std::string_view dead_setting) {
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
      verdict.text = cause_of(*lost) + also_killed(*lost, ends, passed_on_signal);
      verdict.culprit = lost->rank;
    } else if (std::any_of(ends.begin(), ends.end(), [](const RankEnd& e) { return e.by_launcher; })) {
      verdict.text = "ranks that had not ended were killed";
    }
    return verdict;
  }
  if (lost != ends.end()) return {kPeersLost, cause_of(*lost) + also_killed(*lost, ends, passed_on_signal), lost->rank};
  const auto stopped = first([](const RankEnd& e) { return e.stopped.count() != 0; });
  if (stopped != ends.end())
    return {kPeersLost,
            fmt::format("rank {} (process {}) was stopped for {:.1f} s, by SIGSTOP or a debugger, and was killed{}",
                        stopped->rank, stopped->pid, std::chrono::duration<double>(stopped->stopped).count(),
                        dead_setting.empty() ? "" : fmt::format("; {} says how long it may be", dead_setting)),
            stopped->rank};
  auto failed = first([](const RankEnd& e) { return !e.by_launcher && e.exit_code != 0 && e.exit_code != kPeersLost; });
  if (failed == ends.end()) failed = first([](const RankEnd& e) { return !e.by_launcher && e.exit_code != 0; });
  const auto stuck = first([](const RankEnd& e) { return e.by_launcher; });
  if (failed != ends.end() && failed->exit_code == kPeersLost && stuck != ends.end())
    return {kPeersLost, fmt::format("{} was lost by the others, did not end, and was killed", name_of(*stuck)),
            stuck->rank};
  if (failed != ends.end()) {
    const std::string others = was_killed(*failed, 0) ? also_killed(*failed, ends, 0) : std::string{};
    return {exit_code_of(*failed, ends), cause_of(*failed) + others, failed->rank};
  }
  if (stuck != ends.end())
    return {1, fmt::format("{} did not end after the others had ended well, and was killed", name_of(*stuck)),
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
