#include "tools/crew/crew.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <iostream>
#include <optional>

#include "runtime/base/error.hpp"
#include "tools/crew/line.hpp"
#include "tools/rtrun/sites.hpp"
#include "tools/rtrun/spawn.hpp"

namespace troupe::crew {
namespace {

using nlohmann::json;

constexpr std::uint16_t kPortInNodes = 29500;
constexpr std::size_t kSourcesOfAProcess = 4;
constexpr std::chrono::hours kLongestPoll{1};  // a longer wait in milliseconds does not fit into an int

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  TROUPE_CHECK_ERRNO(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                     Code::environment, "the system gives no random numbers for a secret");
  std::string letters;
  for (const unsigned char byte : bytes) letters += text(static_cast<int>(byte), '.');
  return letters;
}

/// Runs this program as a process to measure. In a network namespace it is started by `ip`, which mounts the
/// namespace's devices and then executes this program in its own process.
void set_command(rtrun::RankStart& start, int line, const std::string& node) {
  start.arguments = {"rtbench", "member", "--line", std::to_string(line)};
  if (node.empty()) return;
  start.arguments.front() = std::filesystem::read_symlink("/proc/self/exe");
  start.arguments.insert(start.arguments.begin(), {"env", "ip", "netns", "exec", node});
  start.program = "/usr/bin/env";
}

}  // namespace

class Crew::Process {
 public:
  Process(const rtrun::Signals& signals, const rtrun::RankStart& start, Fd line)
      : line_(std::move(line)), process_(rtrun::spawn_rank(signals, start)) {}
  ~Process() {
    if (!ended_) {
      ::kill(process_.pid, SIGKILL);
      ::waitpid(process_.pid, nullptr, 0);
    }
    read_output();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const noexcept { return process_.pid; }
  const Line& line() const noexcept { return line_; }
  std::optional<Clock::time_point> ended() const noexcept { return ended_; }
  bool failed() const noexcept { return ended_ && status_ != 0 && !may_fail; }
  bool may_fail = false;
  std::deque<json> words;

  /// How the process ended, for people.
  std::string fate() const {
    return WIFSIGNALED(status_) ? text("killed by signal ", WTERMSIG(status_))
                                : text("exit code ", WEXITSTATUS(status_));
  }
  /// The descriptors for poll() that show that something has happened.
  std::array<pollfd, kSourcesOfAProcess> sources() const {
    const auto open = [](const Fd& fd) { return fd ? fd.get() : -1; };
    return {{{ended_ ? -1 : process_.pidfd.get(), POLLIN, 0},
             {ended_ ? -1 : line_.fd(), POLLIN, 0},
             {open(process_.out), POLLIN, 0},
             {open(process_.err), POLLIN, 0}}};
  }
  /// Reads what has arrived; `seen` is the time of the poll.
  void look(const pollfd* sources, Clock::time_point seen) {
    const bool ends = sources[0].revents != 0;
    if (ends || sources[1].revents != 0) {
      while (auto word = line_.hear_now()) words.push_back(std::move(*word));
    }
    if (ends || sources[2].revents != 0 || sources[3].revents != 0) read_output();
    if (ends && ::waitpid(process_.pid, &status_, WNOHANG) == process_.pid) ended_ = seen;
  }

 private:
  void read_output() {
    for (Fd* pipe : {&process_.out, &process_.err}) {
      std::array<char, 4096> bytes{};
      ssize_t got = 0;
      while (*pipe && (got = ::read(pipe->get(), bytes.data(), bytes.size())) > 0) std::cerr.write(bytes.data(), got);
      if (got == 0) pipe->reset();  // no process writes to it any more
    }
    std::cerr << std::flush;
  }

  Line line_;
  rtrun::RankProcess process_;
  std::optional<Clock::time_point> ended_;
  int status_ = 0;  // valid once it has ended
};

Crew::Crew(const rtrun::Signals& signals, CrewPlan plan)
    : signals_(signals), plan_(std::move(plan)), begun_(Clock::now()) {
  const Fd secret = rtrun::sealed_file(random_secret());
  const auto [listener, port] = rtrun::loopback_listener();
  const Namespaces* const nodes = plan_.nodes;
  for (std::uint32_t rank = 0; rank < plan_.roles.size(); ++rank) {
    auto [here, there] = make_line();
    rtrun::RankStart start{.inherited = {there.get(), secret.get()}};
    set_command(start, there.get(), nodes != nullptr ? nodes->name(rank) : "");
    start.environment = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(plan_.roles.size())},
                         {"LOCAL_RANK", std::to_string(rank)},
                         {"MASTER_ADDR", nodes != nullptr ? nodes->address(0) : "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(nodes != nullptr ? kPortInNodes : port)},
                         {"TROUPE_SECRET_FILE", text("/proc/self/fd/", secret.get())}};
    for (auto& variable : rtrun::library_habits()) start.environment.push_back(std::move(variable));
    if (rank == 0 && nodes == nullptr) {
      start.inherited.push_back(listener.get());
      start.environment.emplace_back("TROUPE_LISTEN_FD", std::to_string(listener.get()));
    }
    if (!plan_.lines.empty()) {
      start.inherited.push_back(plan_.lines[rank].get());
      plan_.roles[rank]["line"] = plan_.lines[rank].get();
    }
    members_.push_back(std::make_unique<Process>(signals, start, std::move(here)));
    tell(rank, plan_.roles[rank]);
  }
  plan_.lines.clear();
}

/// Kills all at once, since each may take some time to end.
Crew::~Crew() {
  for (const auto& member : members_)
    if (!member->ended()) ::kill(member->pid(), SIGKILL);
}

pid_t Crew::pid(std::uint32_t member) const { return members_.at(member)->pid(); }

/// Waits until something happens, at most until the deadline.
void Crew::look_until(Deadline deadline) {
  std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
  for (const auto& member : members_) {
    const auto sources = member->sources();
    polled.insert(polled.end(), sources.begin(), sources.end());
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(deadline.left(), kLongestPoll));
  ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  const auto now = Clock::now();
  TROUPE_CHECK(signals_.take() == 0, Code::aborted, "stopped by a signal");
  for (std::size_t i = 0; i < members_.size(); ++i) members_[i]->look(&polled[1 + i * kSourcesOfAProcess], now);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    TROUPE_CHECK(!members_[i]->failed(), Code::device_fault, "process ", i, " of ", plan_.name, " failed (",
                 members_[i]->fate(), "); its output is above");
  }
}

void Crew::tell(std::uint32_t member, const json& order) const {
  TROUPE_CHECK(members_.at(member)->line().say(order), Code::device_fault, "process ", member, " of ", plan_.name,
               " cannot be told to ", order.dump());
}

json Crew::await(Blocking&, std::uint32_t member, const std::string& word, Deadline deadline) {
  std::deque<json>& words = members_.at(member)->words;
  const auto is_it = [&](const json& said) { return said.at("say") == word; };
  for (;;) {
    const auto found = std::find_if(words.begin(), words.end(), is_it);
    if (found != words.end()) {
      json said = std::move(*found);
      words.erase(found);
      return said;
    }
    TROUPE_CHECK(!members_[member]->ended(), Code::device_fault, "process ", member, " of ", plan_.name,
                 " ended before it said \"", word, "\"");
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "process ", member, " of ", plan_.name, " did not say \"", word,
                 "\" in time; is this machine very busy?");
    look_until(deadline);
  }
}

std::vector<json> Crew::await_all(Blocking& blocking, const std::string& word) {
  std::vector<json> answers;
  const Deadline deadline = patience();
  for (std::uint32_t member = 0; member < size(); ++member) answers.push_back(await(blocking, member, word, deadline));
  return answers;
}

json Crew::ask(Blocking& blocking, std::uint32_t member, const json& order, const std::string& word) {
  tell(member, order);
  return await(blocking, member, word, patience());
}

std::vector<json> Crew::ask_all(Blocking& blocking, const json& order, const std::string& word) {
  for (std::uint32_t member = 0; member < size(); ++member) tell(member, order);
  return await_all(blocking, word);
}

std::vector<json> Crew::said(std::uint32_t member, const std::string& word) const {
  std::vector<json> found;
  for (const json& said : members_.at(member)->words)
    if (said.at("say") == word) found.push_back(said);
  return found;
}

std::size_t Crew::said_by_all(const std::string& word) const {
  std::size_t times = 0;
  for (std::uint32_t member = 0; member < size(); ++member) times += said(member, word).size();
  return times;
}

void Crew::rest(Blocking&, Clock::duration span) {
  for (const Deadline deadline = Deadline::after(span); !deadline.passed();) look_until(deadline);
}

Clock::time_point Crew::signal(std::uint32_t member, int number) {
  Process& whom = *members_.at(member);
  whom.may_fail = whom.may_fail || number == SIGKILL;
  const auto now = Clock::now();
  TROUPE_CHECK_ERRNO(::kill(whom.pid(), number) == 0, Code::device_fault, "cannot signal process ", member, " of ",
                     plan_.name);
  return now;
}

Clock::time_point Crew::await_end(Blocking&, std::uint32_t member, Deadline deadline) {
  while (!members_.at(member)->ended()) {
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "process ", member, " of ", plan_.name, " does not end");
    look_until(deadline);
  }
  return *members_[member]->ended();
}

}  // namespace troupe::crew
