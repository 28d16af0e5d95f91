#pragma once

#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>

namespace troupe::test {

/// An actor system without threads: actors run when the test says so, one message after the other, on a clock that stands still.
class ActorWorld {
 public:
  ActorWorld() : system_(prepare(config_)) {}

  caf::actor_system& system() { return system_; }
  /// Runs until every mailbox is empty.
  void run() { static_cast<caf::scheduler::test_coordinator&>(system_.scheduler()).run(); }
  /// Sends without a sender.
  template <class Handle, class Message>
  void send(const Handle& to, Message message) {
    caf::anon_send(to, std::move(message));
  }

 private:
  static caf::actor_system_config& prepare(caf::actor_system_config& config) {
    config.set("scheduler.policy", caf::atom("testing"));
    return config;
  }
  caf::actor_system_config config_;
  caf::actor_system system_;
};

}  // namespace troupe::test
