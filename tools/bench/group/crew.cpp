#include "tools/bench/group/crew.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <deque>
#include <iostream>
#include <optional>

#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "tools/bench/group/control_line.hpp"
#include "tools/bench/messages/say.hpp"
#include "tools/rtrun/sites.hpp"
#include "tools/rtrun/spawn.hpp"

namespace troupe::bench {
namespace {

using nlohmann::json;

constexpr std::uint16_t kPortInNodes = 29500;
constexpr std::size_t kSourcesOfAProcess = 4;
/// When nothing comes for so long, nothing is under way.
constexpr std::chrono::milliseconds kQuiet{200};

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  TROUPE_CHECK_ERRNO(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                     Code::environment, "the system gives no random numbers for a secret");
  std::string letters;
  for (const unsigned char byte : bytes) letters += text(static_cast<int>(byte), '.');
  return letters;
}

}  // namespace

class Crew::Process {
 public:
  Process(const rtrun::Signals& signals, const rtrun::RankStart& start, ControlLine line)
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
  const ControlLine& line() const noexcept { return line_; }
  std::optional<Clock::time_point> ended() const noexcept { return ended_; }
  bool may_end = false;
  std::deque<json> words;

  /// How it ended.
  std::string fate() const {
    return WIFSIGNALED(status_) ? text("killed by signal ", WTERMSIG(status_))
                                : text("exit code ", WEXITSTATUS(status_));
  }
  /// For poll(): what tells of news.
  std::array<pollfd, kSourcesOfAProcess> sources() const {
    const auto open = [](const Fd& fd) { return fd ? fd.get() : -1; };
    return {{{ended_ ? -1 : process_.pidfd.get(), POLLIN, 0},
             {ended_ ? -1 : line_.fd(), POLLIN, 0},
             {open(process_.out), POLLIN, 0},
             {open(process_.err), POLLIN, 0}}};
  }
  /// Takes what has come since; `seen` is when the sources were looked at.
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
      if (got == 0) pipe->reset();  // nobody writes any more
    }
    std::cerr << std::flush;
  }

  ControlLine line_;
  rtrun::RankProcess process_;
  std::optional<Clock::time_point> ended_;
  int status_ = 0;  // once it has ended
};

Crew::Crew(const rtrun::Signals& signals, const CrewPlan& plan)
    : signals_(signals), patience_(std::chrono::seconds(plan.each.patience_s)), begun_(Clock::now()) {
  const Fd secret = rtrun::sealed_file(random_secret());
  const auto [listener, port] = rtrun::loopback_listener();
  for (std::uint32_t rank = 0; rank < plan.size; ++rank) {
    auto [here, there] = make_control_line();
    MemberCase what = plan.each;
    what.line = there.fd();
    if (!plan.cpus.empty()) what.cpu = plan.cpus[rank % plan.cpus.size()];
    if (plan.nodes != nullptr) what.node = plan.nodes->name(rank);
    rtrun::RankStart start{.arguments = arguments_of(what), .inherited = {what.line, secret.get()}};
    start.environment = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(plan.size)},
                         {"LOCAL_RANK", std::to_string(rank)},
                         {"MASTER_ADDR", plan.nodes != nullptr ? plan.nodes->address(0) : "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(plan.nodes != nullptr ? kPortInNodes : port)},
                         {"TROUPE_SECRET_FILE", text("/proc/self/fd/", secret.get())},
                         {"UCX_LOG_FILE", "stderr"},
                         {"UCX_HANDLE_ERRORS", "none"}};
    if (rank == 0 && plan.nodes == nullptr) {
      start.inherited.push_back(listener.get());
      start.environment.emplace_back("TROUPE_LISTEN_FD", std::to_string(listener.get()));
    }
    members_.push_back(std::make_unique<Process>(signals, start, std::move(here)));
  }
}

/// All at once, since each may take a while to go.
Crew::~Crew() {
  for (const auto& member : members_)
    if (!member->ended()) ::kill(member->pid(), SIGKILL);
}

pid_t Crew::pid(std::uint32_t member) const { return members_.at(member)->pid(); }
Deadline Crew::patience() const { return Deadline::after(patience_); }

/// Waits for the next thing to happen, at most until the deadline.
void Crew::look_until(Deadline deadline) {
  std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
  for (const auto& member : members_) {
    const auto sources = member->sources();
    polled.insert(polled.end(), sources.begin(), sources.end());
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
  ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  const auto now = Clock::now();
  TROUPE_CHECK(signals_.take() == 0, Code::aborted, "stopped by a signal");
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Process& member = *members_[i];
    member.look(&polled[1 + i * kSourcesOfAProcess], now);
    TROUPE_CHECK(!member.ended() || member.may_end, Code::device_fault, "process ", i,
                 " of the measured group failed (", member.fate(), "); what it said of it is above");
  }
}

void Crew::tell(std::uint32_t member, const json& order) const {
  TROUPE_CHECK(members_.at(member)->line().say(order), Code::device_fault, "process ", member,
               " of the measured group cannot be told to ", order.dump());
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
    TROUPE_CHECK(!members_[member]->ended(), Code::device_fault, "process ", member,
                 " of the measured group ended before it said \"", word, "\"");
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "process ", member, " of the measured group did not say \"", word,
                 "\" in time; is this machine very busy?");
    look_until(deadline);
  }
}

void Crew::await_joined(Blocking& blocking) {
  const Deadline deadline = patience();
  for (std::uint32_t member = 0; member < size(); ++member) await(blocking, member, "joined", deadline);
}

json Crew::ask(Blocking& blocking, std::uint32_t member, const json& order, const std::string& word) {
  tell(member, order);
  return await(blocking, member, word, patience());
}

std::vector<json> Crew::ask_all(Blocking& blocking, const json& order, const std::string& word) {
  for (std::uint32_t member = 0; member < size(); ++member) tell(member, order);
  std::vector<json> answers;
  const Deadline deadline = patience();
  for (std::uint32_t member = 0; member < size(); ++member) answers.push_back(await(blocking, member, word, deadline));
  return answers;
}

void Crew::talk(Blocking& blocking, const std::vector<std::uint32_t>& members) {
  for (const std::uint32_t member : members) {
    std::vector<std::uint32_t> with;
    std::copy_if(members.begin(), members.end(), std::back_inserter(with), [&](auto other) { return other != member; });
    tell(member, {{"do", "talk"}, {"with", with}});
  }
  for (const std::uint32_t member : members) await(blocking, member, "talking", patience());
}

void Crew::hush(Blocking& blocking) {
  ask_all(blocking, {{"do", "hush"}}, "hushed");
  const auto heard = [&] {
    std::vector<std::uint64_t> counts;
    for (const json& count : ask_all(blocking, {{"do", "count"}}, "count")) counts.push_back(count.at("messages"));
    return counts;
  };
  const Deadline deadline = patience();
  for (auto before = heard();;) {
    rest(blocking, kQuiet);
    const auto now = heard();
    if (now == before) return;
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "messages of the measured group do not come to an end");
    before = now;
  }
}

std::size_t Crew::said(std::uint32_t member, const std::string& word) const {
  const std::deque<json>& words = members_.at(member)->words;
  return static_cast<std::size_t>(
      std::count_if(words.begin(), words.end(), [&](const json& said) { return said.at("say") == word; }));
}

void Crew::report_losses() const {
  for (std::uint32_t member = 0; member < size(); ++member) {
    for (const json& said : members_[member]->words) {
      if (said.at("say") != "lost") continue;
      const double at = milliseconds_since(begun_, said.at("at")) / 1000;
      say(text("group: ", at, " s after the start process ", member, " lost process ", said.at("peer").dump(), ": ",
               said.at("why").get<std::string>()));
    }
  }
}

void Crew::rest(Blocking&, Clock::duration span) {
  for (const Deadline deadline = Deadline::after(span); !deadline.passed();) look_until(deadline);
}

Clock::time_point Crew::signal(std::uint32_t member, int number) {
  Process& whom = *members_.at(member);
  whom.may_end = whom.may_end || number == SIGKILL;
  const auto now = Clock::now();
  TROUPE_CHECK_ERRNO(::kill(whom.pid(), number) == 0, Code::device_fault, "cannot signal process ", member,
                     " of the measured group");
  return now;
}

bool Crew::stop(Blocking& blocking) {
  for (const auto& member : members_) member->may_end = true;
  const auto within = std::chrono::duration_cast<std::chrono::milliseconds>(patience_ * 9 / 10);
  const auto reports = ask_all(blocking, {{"do", "stop"}, {"within_ms", within.count()}}, "stopped");
  bool clean = true;
  for (std::uint32_t member = 0; member < size(); ++member) {
    if (reports[member].at("clean").get<bool>()) continue;
    say(text("group: process ", member, " did not leave clean: ", reports[member].at("text").get<std::string>()));
    clean = false;
  }
  return clean;
}

Clock::time_point Crew::await_end(Blocking&, std::uint32_t member, Deadline deadline) {
  Process& whom = *members_.at(member);
  whom.may_end = true;
  while (!whom.ended()) {
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "process ", member, " of the measured group does not end");
    look_until(deadline);
  }
  return *whom.ended();
}

}  // namespace troupe::bench
