#include "tools/rtrun/launcher.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "tools/rtrun/job.hpp"
#include "tools/rtrun/line_forwarder.hpp"
#include "tools/rtrun/messages.hpp"
#include "tools/rtrun/program.hpp"
#include "tools/rtrun/remote.hpp"
#include "tools/rtrun/spawn.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::rtrun {
namespace {

using std::chrono::milliseconds;
/// How long ranks may take to report that they lost a peer, and to notice that a peer failed by itself.
constexpr milliseconds kAfterLoss{800};
constexpr milliseconds kAfterFailure{2000};
/// How long a killed process may take to end, and how long output of ended ranks is read.
constexpr milliseconds kAfterKill{5000};
constexpr milliseconds kDrain{500};
/// How often the launcher looks for stopped ranks, and after which time it reports one.
constexpr milliseconds kLook{500};
constexpr milliseconds kStoppedNote{2000};
/// How much longer than faults.dead_ms a rank may be stopped: ranks that are connected can then report the loss first.
constexpr milliseconds kHeadStart{1000};

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  TROUPE_CHECK_ERRNO(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                     Code::environment, "the system gives no random numbers for the job secret");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// Removes logs of an earlier job, which may have had more ranks, or other ranks with errors.
void remove_logs(const std::string& folder) {
  std::error_code ignored;  // a remaining log is not a reason to fail
  for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("rank-") || !name.ends_with(".log") || name.size() < 10) continue;
    if (std::all_of(name.begin() + 5, name.end() - 4, [](unsigned char c) { return std::isdigit(c); }))
      std::filesystem::remove(entry.path(), ignored);
  }
}

struct RankEntry {
  std::uint32_t rank = 0;
  std::unique_ptr<RankLog> log;
  const RankSite* site = nullptr;
  pid_t pid = -1;
  Fd pidfd;
  Fd in;  // stdin of a remote shell
  LineForwarder out;
  LineForwarder err;
  bool alive = true;
  bool killed_by_us = false;
  bool lost_stopped = false;  // it was killed because it was stopped
  milliseconds stopped{0};    // for how long, as far as this process was running
};

/// Whether a process is stopped (by SIGSTOP and the like, or by a debugger).
bool is_stopped(pid_t pid) {
  std::ifstream file{fmt::format("/proc/{}/stat", pid)};
  std::string text;
  std::getline(file, text);
  const std::size_t name = text.rfind(") ");
  return name != text.npos && name + 2 < text.size() && (text[name + 2] == 'T' || text[name + 2] == 't');
}

/// The ranks of one job, from start to end. The destructor leaves none running.
class Job {
 public:
  Job(const Signals& signals, const LaunchOptions& options) : signals_(signals), options_(options) {}
  ~Job() {
    kill_all();
    reap_all(Deadline::after(kAfterKill));
  }

  void start() {
    const std::string secret = random_secret();
    const Fd secret_file = sealed_file(secret);
    const std::string& folder = options_.log_folder;
    if (!folder.empty()) remove_logs(folder);
    const auto& sites = options_.sites;
    if (std::all_of(sites.begin(), sites.end(), [](const RankSite& site) { return site.here; }))
      signals_.take_suspend_too();
    const Rendezvous rendezvous = choose_rendezvous(options_.sites, options_.port);
    for (std::uint32_t rank = 0; rank < options_.sites.size(); ++rank) {
      const RankSite& site = options_.sites[rank];
      RankStart start = site.here ? start_here(rank, rendezvous, secret_file) : start_there(rank, rendezvous);
      start.own_stdout = rank != 0;
      RankProcess process = spawn_rank(signals_, start);
      const std::string prefix = fmt::format("[rank {}] ", rank);
      auto log = std::make_unique<RankLog>(
          rank == 0 || folder.empty() ? "" : fmt::format("{}/rank-{}.log", folder, rank), options_.name);
      LineForwarder out{prefix, std::move(process.out), *log};
      LineForwarder err{prefix, std::move(process.err), *log};
      ranks_.push_back({rank, std::move(log), &site, process.pid, std::move(process.pidfd), std::move(process.in),
                        std::move(out), std::move(err)});
      if (!site.here) tell(ranks_.back(), secret);
    }
  }

  void wait() {
    while (any_alive()) {
      if (kill_at_ && kill_at_->passed()) {
        kill_all();
        kill_at_ = Deadline::after(kAfterKill);
      }
      if (given_up_) return;
      const Clock::duration patience = kill_at_ ? kill_at_->left() : Clock::duration::max();
      poll_once(std::min<Clock::duration>(patience, kLook));
      look_for_stopped();
      look_for_reader();
    }
  }

  /// Forwards what ranks have written and nobody has read yet.
  void drain() {
    const Deadline deadline = Deadline::after(kDrain);
    while (any_open() && !deadline.passed()) poll_once(deadline.left());
    for (RankEntry& entry : ranks_) {
      entry.out.flush();
      entry.err.flush();
    }
  }

  /// The verdict, with the first error that the culprit wrote, and the place of its log.
  Verdict verdict() const {
    Verdict verdict = judge(ends_, signal_, options_.dead_setting);
    if (!verdict.culprit) return verdict;
    const RankLog& log = *ranks_[*verdict.culprit].log;
    const bool says_rtrun = options_.program.empty() && options_.sites[*verdict.culprit].here;
    const std::string& said = log.first_error().empty() && !says_rtrun ? log.last_line() : log.first_error();
    if (!said.empty()) verdict.text += ": " + said;
    if (log.made()) verdict.text += fmt::format("; all that it wrote is in {}", log.path());
    return verdict;
  }

 private:
  Environment place_of(std::uint32_t rank, const Rendezvous& rendezvous) const {
    const RankSite& site = options_.sites[rank];
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(options_.sites.size())},
            {"LOCAL_RANK", std::to_string(site.local_rank)},
            {"LOCAL_WORLD_SIZE", std::to_string(site.local_ranks)},
            {"MASTER_ADDR", rendezvous.address},
            {"MASTER_PORT", std::to_string(rendezvous.port)}};
  }

  RankStart start_here(std::uint32_t rank, const Rendezvous& rendezvous, const Fd& secret) const {
    RankStart start;
    if (options_.program.empty()) {
      if (!options_.rank_program.empty()) start.program = options_.rank_program;
      start.arguments = options_.arguments;
    } else {
      start.program = find_program(options_.program.front());
      start.arguments = options_.program;
      start.own_program = false;
    }
    start.environment = place_of(rank, rendezvous);
    start.environment.emplace_back("TROUPE_SECRET_FILE", fmt::format("/proc/self/fd/{}", secret.get()));
    start.inherited = {secret.get()};
    for (auto& variable : library_habits()) start.environment.push_back(std::move(variable));
    if (rank == 0 && rendezvous.listener) {
      start.inherited.push_back(rendezvous.listener.get());
      start.environment.emplace_back("TROUPE_LISTEN_FD", std::to_string(rendezvous.listener.get()));
    }
    return start;
  }

  RankStart start_there(std::uint32_t rank, const Rendezvous& rendezvous) const {
    RemoteCommand command{working_folder(), passed_environment(), options_.arguments};
    command.arguments.front() = own_program();
    for (auto& variable : place_of(rank, rendezvous)) command.environment.push_back(std::move(variable));
    command.environment.emplace_back("TROUPE_SECRET_STDIN", "1");
    for (auto& variable : library_habits()) command.environment.push_back(std::move(variable));
    RankStart start;
    start.program = "/bin/sh";
    start.arguments = remote_shell_arguments(options_.remote_shell, options_.sites[rank].host, command_line(command));
    start.remote = true;
    return start;
  }

  /// Writes a line to a remote rank. Errors are ignored: a rank that does not read any more has ended, which is noticed
  /// elsewhere.
  static void tell(const RankEntry& entry, const std::string& what) {
    const std::string line = what + "\n";
    [[maybe_unused]] const auto written = ::write(entry.in.get(), line.data(), line.size());
  }

  void note(std::string_view text) const { say(text, options_.name); }

  bool any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankEntry& e) { return e.alive; });
  }
  bool any_open() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankEntry& e) { return e.out.open() || e.err.open(); });
  }

  void poll_once(std::optional<Clock::duration> limit) {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    for (const RankEntry& entry : ranks_) {  // poll() ignores negative descriptors
      polled.push_back({entry.alive ? entry.pidfd.get() : -1, POLLIN, 0});
      polled.push_back({entry.out.fd(), POLLIN, 0});
      polled.push_back({entry.err.fd(), POLLIN, 0});
    }
    const auto wait_ms = limit ? std::chrono::ceil<milliseconds>(*limit).count() : -1;
    if (::poll(polled.data(), polled.size(), static_cast<int>(wait_ms)) <= 0) return;
    if (polled[0].revents != 0) take_signal();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (polled[3 * i + 2].revents != 0) ranks_[i].out.forward();
      if (polled[3 * i + 3].revents != 0) ranks_[i].err.forward();
      if (polled[3 * i + 1].revents != 0) reap(ranks_[i]);
    }
  }

  /// A stopped rank keeps the others waiting; before they are connected, for as long as faults.start_s. If all are
  /// stopped, somebody probably wants to continue them later.
  void look_for_stopped() {
    const auto now = Clock::now();
    if (now < looked_ + kLook) return;
    // Time in which this process was stopped, too, is not counted.
    const auto passed = std::chrono::duration_cast<milliseconds>(std::min<Clock::duration>(now - looked_, 2 * kLook));
    looked_ = now;
    bool any_goes_on = false;
    for (RankEntry& entry : ranks_) {
      if (!entry.alive || !entry.site->here || entry.killed_by_us) continue;  // a dying rank is not stopped
      const auto before = entry.stopped;
      entry.stopped = is_stopped(entry.pid) ? before + passed : milliseconds{0};
      any_goes_on |= entry.stopped.count() == 0;
      if (before < kStoppedNote && entry.stopped >= kStoppedNote)
        note(
            fmt::format("rank {} (process {}) is stopped, by SIGSTOP or a debugger: it is declared lost after {:g} s{}",
                        entry.rank, entry.pid, std::chrono::duration<double>(options_.dead).count(),
                        options_.dead_setting.empty() ? "" : fmt::format(" ({})", options_.dead_setting)));
    }
    if (!any_goes_on || signal_ != 0) return;
    const milliseconds patience = options_.dead + std::max(kHeadStart, options_.dead / 5);
    for (RankEntry& entry : ranks_) {
      if (!entry.alive || entry.killed_by_us || entry.stopped < patience) continue;
      entry.killed_by_us = true;
      entry.lost_stopped = true;
      ::kill(-entry.pid, SIGKILL);
      ::kill(entry.pid, SIGKILL);
      kill_within(kAfterLoss);
    }
  }

  /// When the others have ended well, rank 0 may still wait, as any program does, for somebody who does not read its
  /// stdout: a pager, or a terminal that Ctrl-S has stopped. That time is not counted.
  void look_for_reader() {
    if (!kill_at_ || failed_ || signal_ != 0 || !ranks_.front().alive) return;
    if (std::any_of(ranks_.begin() + 1, ranks_.end(), [](const RankEntry& other) { return other.alive; })) return;
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    if (::poll(&out, 1, 0) != 0) return;
    kill_at_ = Deadline::after(options_.idle);
    if (!std::exchange(told_of_reader_, true))
      note(
          "the other ranks have ended, and rank 0 waits until somebody reads stdout: let the pager or the terminal "
          "(Ctrl-Q) go on, or end it");
  }

  void take_signal() {
    const int signal = signals_.take();
    if (signal == 0) return;
    if (signal == SIGTSTP) return suspend();
    if (signal == SIGUSR1 && !options_.program.empty())
      return note(
          "SIGUSR1: only ranks that are rtrun report what they are doing; this job's ranks are another program");
    if (signal == SIGUSR1) return pass_on(signal);
    if (signal_ != 0) {
      kill_all();
      return kill_within(kAfterKill);
    }
    signal_ = signal;
    pass_on(signal);  // first, since nobody may be reading stderr
    note(fmt::format("{}: stopping after the current steps; a second signal stops at once", signal_name(signal)));
    kill_within(options_.stop);
  }

  /// The ranks are in process groups of their own, so Ctrl-Z reaches only this process. A job that is ending goes on,
  /// since the time that it has for that does.
  void suspend() {
    if (kill_at_) return;
    const auto pass_to_groups = [&](int signal) {
      for (const RankEntry& entry : ranks_)
        if (entry.alive) ::kill(-entry.pid, signal);
    };
    pass_to_groups(SIGSTOP);
    ::raise(SIGSTOP);
    pass_to_groups(SIGCONT);
  }

  void pass_on(int signal) {
    for (const RankEntry& entry : ranks_) {
      if (!entry.alive) continue;
      if (entry.in)
        tell(entry, fmt::format("signal {}", signal));
      else
        ::kill(entry.pid, signal);
    }
  }

  void reap(RankEntry& entry) {
    siginfo_t info{};
    if (::waitid(P_PIDFD, static_cast<id_t>(entry.pidfd.get()), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
      return;
    entry.alive = false;
    entry.in.reset();  // a rank ends when its remote shell's stdin is closed
    entry.out.forward();
    entry.err.forward();
    RankEnd end;
    end.rank = entry.rank;
    end.pid = entry.pid;
    if (!entry.site->here) end.host = entry.site->host;
    end.by_launcher = entry.killed_by_us;
    if (entry.lost_stopped) end.stopped = entry.stopped;
    (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
    end.out_of_memory = entry.site->here && end.signal == SIGKILL && count_memory_kills() > memory_kills_;
    ends_.push_back(end);
    failed_ |= end.by_launcher || end.signal != 0 || end.exit_code != 0;
    if (!end.by_launcher && signal_ == 0)
      kill_within(end.signal != 0 ? kAfterLoss : end.exit_code != 0 ? kAfterFailure : options_.idle);
  }

  /// Sets the time of killing; an earlier time that was set before remains.
  void kill_within(milliseconds span) {
    const Deadline deadline = Deadline::after(span);
    if (!kill_at_ || deadline.at() < kill_at_->at()) kill_at_ = deadline;
  }

  void kill_all() {
    for (RankEntry& entry : ranks_) {
      if (entry.alive && !entry.killed_by_us) reap(entry);  // it may have just ended by itself
      if (!entry.alive) continue;
      given_up_ |= entry.killed_by_us;  // SIGKILL has not ended it: the kernel still holds it
      entry.killed_by_us = true;
      entry.in.reset();
      ::kill(-entry.pid, SIGKILL);
      ::kill(entry.pid, SIGKILL);
    }
  }

  void reap_all(Deadline deadline) {
    while (any_alive() && !deadline.passed()) poll_once(deadline.left());
  }

  const Signals& signals_;
  const LaunchOptions& options_;
  std::vector<RankEntry> ranks_;
  std::vector<RankEnd> ends_;
  std::optional<Deadline> kill_at_;
  Clock::time_point looked_ = Clock::now();
  int signal_ = 0;
  bool failed_ = false;  // a rank has ended, and not well
  bool told_of_reader_ = false;
  bool given_up_ = false;
  std::uint64_t memory_kills_ = count_memory_kills();
};

}  // namespace

int launch(Blocking&, const Signals& signals, const LaunchOptions& options) {
  Job job{signals, options};
  job.start();
  job.wait();
  job.drain();
  remove_ucx_orphans();
  const Verdict verdict = job.verdict();
  if (!verdict.text.empty()) {
    say_error(verdict.text, options.name);
    if (options.failed) options.failed(verdict.text, verdict.exit_code);
  }
  return verdict.exit_code;
}

}  // namespace troupe::rtrun
