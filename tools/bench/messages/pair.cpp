#include "tools/bench/messages/pair.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "tools/rtrun/spawn.hpp"

namespace troupe::bench {
namespace {

constexpr std::chrono::hours kHour{1};  // milliseconds of longer waits do not fit into an int

/// An end that runs; killed when this ends first.
class EndProcess {
 public:
  EndProcess(const rtrun::Signals& signals, const EndCase& what)
      : process_(rtrun::spawn_rank(signals, {arguments_of(what), {}, {what.line}, true})) {}
  ~EndProcess() {
    if (running()) ::kill(process_.pid, SIGKILL);
    reap(0);
  }
  EndProcess(const EndProcess&) = delete;
  EndProcess& operator=(const EndProcess&) = delete;

  bool running() const noexcept { return running_; }
  bool well() const noexcept { return !running_ && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }
  std::string fate() const {
    if (running_) return "still running";
    return WIFSIGNALED(status_) ? text("killed by signal ", WTERMSIG(status_))
                                : text("exit code ", WEXITSTATUS(status_));
  }
  /// Such an end tells what it knows until now; others die of it.
  void ask_to_stop() const noexcept {
    if (running()) ::kill(process_.pid, SIGTERM);
  }
  const std::string& out() const noexcept { return out_; }
  /// For poll(): what tells of news.
  std::array<pollfd, 3> news() const {
    return {
        {{process_.pidfd.get(), POLLIN, 0}, {open_fd(process_.out), POLLIN, 0}, {open_fd(process_.err), POLLIN, 0}}};
  }
  /// Takes what has come since. The pipes first: what the process said last is in them when it has ended.
  void look() {
    read_into(process_.out, out_);
    std::string said;
    read_into(process_.err, said);
    std::cerr << said;
    if (running_) reap(WNOHANG);
  }

 private:
  static int open_fd(const Fd& fd) { return fd ? fd.get() : -1; }
  static void read_into(Fd& pipe, std::string& text) {
    std::array<char, 4096> bytes{};
    ssize_t got = 0;
    while (pipe && (got = ::read(pipe.get(), bytes.data(), bytes.size())) > 0)
      text.append(bytes.data(), static_cast<std::size_t>(got));
    if (got == 0) pipe.reset();  // nobody writes any more
  }
  void reap(int flags) {
    if (running_ && ::waitpid(process_.pid, &status_, flags) == process_.pid) running_ = false;
  }

  rtrun::RankProcess process_;
  std::string out_;
  bool running_ = true;
  int status_ = 0;  // once it does not run
};

std::array<Fd, 2> make_line() {
  std::array<int, 2> ends{};
  TROUPE_CHECK_ERRNO(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, Code::environment,
                     "cannot connect two processes; look at `ulimit -n`");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

/// Longer than it takes on the slowest machine.
Clock::duration most_time(const EndCase& what) {
  return std::chrono::seconds(60) + 40 * what.span() + std::chrono::microseconds(200) * what.messages +
         std::chrono::milliseconds(20) * what.tensors;
}

/// Whether they were asked to stop.
bool wait_for_both(const rtrun::Signals& signals, const EndCase& what, EndProcess& server, EndProcess& client) {
  const Deadline deadline = Deadline::after(most_time(what));
  bool stopping = false;
  // An end that fails takes the other with it.
  const auto failed = [](const EndProcess& end) { return !end.running() && !end.well(); };
  while ((server.running() || client.running()) && !failed(server) && !failed(client)) {
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "a measurement did not end in time; is this machine very busy?");
    std::vector<pollfd> polled{{signals.fd(), POLLIN, 0}};
    for (const EndProcess* end : {&server, &client}) {
      auto news = end->news();
      if (!end->running()) news[0].fd = -1;
      polled.insert(polled.end(), news.begin(), news.end());
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(deadline.left(), kHour));
    ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if (signals.take() != 0) {
      TROUPE_CHECK(what.endures() && !stopping, Code::aborted, "stopped by a signal");
      stopping = true;
      server.ask_to_stop();
      client.ask_to_stop();
    }
    server.look();
    client.look();
  }
  server.look();
  client.look();
  return stopping;
}

}  // namespace

PairCpus choose_cpus(const std::vector<int>& wanted) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  TROUPE_CHECK_ERRNO(::sched_getaffinity(0, sizeof usable, &usable) == 0, Code::environment, "cannot ask for its CPUs");
  std::vector<int> cpus = wanted;
  for (int cpu = 0; cpu < CPU_SETSIZE && wanted.empty() && cpus.size() < 2; ++cpu)
    if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
  TROUPE_CHECK(!cpus.empty(), Code::environment, "this process may use no CPU below ", CPU_SETSIZE);
  for (const int cpu : cpus) {
    TROUPE_CHECK(cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &usable), Code::invalid, "--cpus has ", cpu,
                 ", which this process may not use; `taskset -p $$` shows those that it may");
  }
  return {cpus.front(), cpus.back()};
}

Figures run_pair(Blocking&, const rtrun::Signals& signals, EndCase what, PairCpus cpus) {
  auto line = make_line();
  what.client = false;
  what.cpu = cpus.server;
  what.line = line[1].get();
  EndProcess server(signals, what);
  line[1].reset();
  what.client = true;
  what.cpu = cpus.client;
  what.line = line[0].get();
  EndProcess client(signals, what);
  line[0].reset();
  const bool stopped = wait_for_both(signals, what, server, client);
  TROUPE_CHECK(!stopped || (server.well() && client.well()), Code::aborted,
               "stopped by a signal before anything was known");
  const auto figures = nlohmann::json::parse(client.out(), nullptr, false);
  TROUPE_CHECK(server.well() && client.well() && figures.is_object(), Code::device_fault, "measuring ", what.impl,
               " over ", what.transport, " at ", what.bytes, " bytes failed (client: ", client.fate(),
               "; server: ", server.fate(), "); what they said of it is above");
  return figures.get<Figures>();
}

}  // namespace troupe::bench
