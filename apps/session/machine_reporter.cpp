#include "apps/session/machine_reporter.hpp"

#include <sched.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/caf_error.hpp"
#include "devices/discovery/machine_discovery.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/topology/machine_json.hpp"

namespace troupe {
namespace {

constexpr const char* kTellerName = "machine";
constexpr int kClockReadings = 5;
using AskMachine = caf::atom_constant<caf::atom("machine")>;
using AskPlace = caf::atom_constant<caf::atom("place")>;
using AskClock = caf::atom_constant<caf::atom("clock")>;

/// What was asked, and the answer as JSON or the reason why there is none.
using Seen = caf::atom_constant<caf::atom("seen")>;
using Unseen = caf::atom_constant<caf::atom("unseen")>;

struct MachineReporterState {
  static constexpr const char* name = "machine";
  std::map<caf::atom_value, std::vector<caf::response_promise>> waiting;  // by question
  std::unique_ptr<IoThreads> looker;                                      // made for the first question
};

/// The rank's threads are pinned to its own cores, but the description covers all cores that the process might use.
/// While it exists, the calling thread may use all of them.
class OnAllCores {
 public:
  OnAllCores() : known_(::sched_getaffinity(0, sizeof own_, mask(own_)) > -1) {
    Cores all;
    all.fill(~std::uint64_t{0});
    (void)::sched_setaffinity(0, sizeof all, mask(all));
  }
  ~OnAllCores() {
    if (known_) (void)::sched_setaffinity(0, sizeof own_, mask(own_));
  }
  OnAllCores(const OnAllCores&) = delete;
  OnAllCores& operator=(const OnAllCores&) = delete;

 private:
  using Cores = std::array<std::uint64_t, 128>;  // space for 8,192 processors
  static cpu_set_t* mask(Cores& cores) { return reinterpret_cast<cpu_set_t*>(cores.data()); }
  Cores own_{};
  const bool known_;
};

/// The wall clock in nanoseconds.
std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

using Self = caf::stateful_actor<MachineReporterState>*;
using Look = std::function<topology::Machine()>;

/// An actor's handlers take less than a millisecond, so a thread looks and only posts the result.
caf::response_promise look_and_answer(Self self, caf::atom_value question, const Look& look) {
  caf::response_promise promise = self->make_response_promise();
  auto& waiting = self->state.waiting[question];
  waiting.push_back(promise);
  if (waiting.size() > 1) return promise;  // it is being examined already
  if (!self->state.looker) self->state.looker = std::make_unique<IoThreads>("machine", 1);
  self->state.looker->post([to = caf::actor_cast<caf::actor>(self), question, look](Blocking&) {
    try {
      caf::anon_send(to, Seen::value, question, topology::to_json(look(), -1));
    } catch (const std::exception& error) {
      caf::anon_send(to, Unseen::value, question, std::string{error.what()});
    }
  });
  return promise;
}

template <class Answer>
void answer(Self self, caf::atom_value question, const Answer& what) {
  for (caf::response_promise& each : self->state.waiting[question]) each.deliver(what);
  self->state.waiting[question].clear();
}

topology::Machine look_at_machine() {
  const OnAllCores here;
  return discover_machine();
}

caf::behavior machine_reporter(Self self, const Look& look_at_process) {
  return {[self](AskMachine) { return look_and_answer(self, AskMachine::value, look_at_machine); },
          [self, look_at_process](AskPlace) { return look_and_answer(self, AskPlace::value, look_at_process); },
          [](AskClock) { return wall_ns(); },
          [self](Seen, caf::atom_value question, const std::string& machine) { answer(self, question, machine); },
          [self](Unseen, caf::atom_value question, const std::string& why) {
            answer(self, question, to_caf(Status{Code::environment, why}));
          }};
}

std::vector<caf::actor> tellers(Blocking& blocking, Group& group, std::span<const Peer> peers, Deadline deadline) {
  std::vector<caf::actor> all;
  for (const Peer peer : peers) all.push_back(group.lookup(blocking, peer, kTellerName, deadline));
  return all;
}

/// The answers of all to one question, which is sent to all at once.
template <class Answer, class Question>
std::vector<Answer> answers(Group& group, std::span<const Peer> peers, const std::vector<caf::actor>& tellers,
                            Question question, Deadline deadline) {
  caf::scoped_actor self{group.system()};
  using Pending = decltype(self->request(tellers.front(), deadline.left(), question));
  std::vector<Pending> pending;
  for (const caf::actor& teller : tellers) pending.push_back(self->request(teller, deadline.left(), question));
  std::vector<Answer> all(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Status failed;
    pending[i].receive([&](Answer& said) { all[i] = std::move(said); },
                       [&](caf::error& error) { failed = from_caf(error); });
    TROUPE_CHECK(failed.ok(), failed.code(), "rank ", peers[i].value,
                 " does not describe its machine: ", failed.text());
  }
  return all;
}

template <class Question>
std::vector<topology::Machine> machines_of(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                           Question question, Deadline deadline) {
  std::vector<topology::Machine> machines;
  const auto said = answers<std::string>(group, peers, tellers(blocking, group, peers, deadline), question, deadline);
  for (std::size_t i = 0; i < said.size(); ++i)
    machines.push_back(topology::machine_from_json(said[i], text("rank ", peers[i].value)));
  return machines;
}

}  // namespace

MachineReporter::MachineReporter(Group& group, std::function<topology::Machine()> look)
    : actor_(group.system().spawn(machine_reporter, std::move(look))) {
  group.publish(kTellerName, actor_);
}

MachineReporter::~MachineReporter() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }

std::vector<topology::Machine> MachineReporter::ask(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                                    Deadline deadline) {
  return machines_of(blocking, group, peers, AskMachine::value, deadline);
}

std::vector<topology::Machine> MachineReporter::ask_places(Blocking& blocking, Group& group,
                                                           std::span<const Peer> peers, Deadline deadline) {
  return machines_of(blocking, group, peers, AskPlace::value, deadline);
}

std::vector<ClockSeen> MachineReporter::ask_clocks(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                                   Deadline deadline) {
  const std::vector<caf::actor> all = tellers(blocking, group, peers, deadline);
  std::vector<ClockSeen> clocks(peers.size());
  // One at a time, so that no answer waits behind another.
  for (std::size_t i = 0; i < peers.size(); ++i) {
    clocks[i].within_ms = std::numeric_limits<double>::infinity();
    for (int reading = 0; reading < kClockReadings; ++reading) {
      const std::int64_t asked = wall_ns();
      const auto said = answers<std::int64_t>(group, peers.subspan(i, 1), {all[i]}, AskClock::value, deadline).front();
      const std::int64_t heard = wall_ns();
      const double within = static_cast<double>(heard - asked) / 2e6;
      if (within < clocks[i].within_ms)
        clocks[i] = {.ahead_ms = static_cast<double>(said - asked) / 1e6 - within, .within_ms = within};
    }
  }
  return clocks;
}

}  // namespace troupe
