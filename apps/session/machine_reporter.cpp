#include "apps/session/machine_reporter.hpp"

#include <sched.h>

#include <array>
#include <cstdint>
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
using AskMachine = caf::atom_constant<caf::atom("machine")>;
using MachineSeen = caf::atom_constant<caf::atom("seen")>;
using MachineUnseen = caf::atom_constant<caf::atom("unseen")>;

struct MachineReporterState {
  static constexpr const char* name = "machine";
  std::vector<caf::response_promise> waiting;
  std::unique_ptr<IoThreads> looker;  // made for the first question
};

/// The rank's threads are pinned to its own cores, but the description covers all cores that the process might use.
void leave_own_cores() {
  std::array<std::uint64_t, 128> all{};  // space for 8,192 processors
  all.fill(~std::uint64_t{0});
  (void)::sched_setaffinity(0, sizeof all, reinterpret_cast<const cpu_set_t*>(all.data()));
}

/// An actor's handlers take less than a millisecond, so a thread examines the machine and only posts the result.
caf::behavior machine_reporter(caf::stateful_actor<MachineReporterState>* self) {
  const auto answer = [self](const auto& what) {
    for (caf::response_promise& each : self->state.waiting) each.deliver(what);
    self->state.waiting.clear();
  };
  return {[self](AskMachine) {
            caf::response_promise promise = self->make_response_promise();
            self->state.waiting.push_back(promise);
            if (self->state.waiting.size() > 1) return promise;  // it is being examined already
            if (!self->state.looker) self->state.looker = std::make_unique<IoThreads>("machine", 1);
            self->state.looker->post([to = caf::actor_cast<caf::actor>(self)](Blocking&) {
              leave_own_cores();
              try {
                caf::anon_send(to, MachineSeen::value, topology::to_json(discover_machine(), -1));
              } catch (const std::exception& error) {
                caf::anon_send(to, MachineUnseen::value, std::string{error.what()});
              }
            });
            return promise;
          },
          [answer](MachineSeen, const std::string& machine) { answer(machine); },
          [answer](MachineUnseen, const std::string& why) {
            answer(to_caf(Status{Code::environment, why}));
          }};
}

}  // namespace

MachineReporter::MachineReporter(Group& group) : actor_(group.system().spawn(machine_reporter)) {
  group.publish(kTellerName, actor_);
}

MachineReporter::~MachineReporter() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }

std::vector<std::string> MachineReporter::ask(Blocking& blocking, Group& group, std::span<const Peer> peers,
                                              Deadline deadline) {
  std::vector<caf::actor> tellers;
  for (const Peer peer : peers) tellers.push_back(group.lookup(blocking, peer, kTellerName, deadline));
  caf::scoped_actor self{group.system()};
  using Answer = decltype(self->request(tellers.front(), deadline.left(), AskMachine::value));
  std::vector<Answer> answers;
  for (const caf::actor& teller : tellers) answers.push_back(self->request(teller, deadline.left(), AskMachine::value));
  std::vector<std::string> machines(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Status failed;
    answers[i].receive([&](std::string& said) { machines[i] = std::move(said); },
                       [&](caf::error& error) { failed = from_caf(error); });
    TROUPE_CHECK(failed.ok(), failed.code(), "rank ", peers[i].value,
                 " does not describe its machine: ", failed.text());
  }
  return machines;
}

}  // namespace troupe
