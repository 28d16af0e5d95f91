#pragma once

#include <functional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace troupe::test {

template <class Handle, class Message>
typename Handle::behavior_type listen(typename Handle::pointer, std::function<void(const Message&)> heard) {
  return {[heard](const Message& message) { heard(message); }};
}

/// An actor system without threads: actors run when the test says so, one message after the other, on a clock that
/// stands still.
class ActorWorld {
 public:
  ActorWorld() : system_(prepare(config_)) {}

  caf::actor_system& system() { return system_; }
  /// Runs until every mailbox is empty; how many messages that took.
  std::size_t run() { return static_cast<caf::scheduler::test_coordinator&>(system_.scheduler()).run(); }
  /// An actor that passes every message to `heard`.
  template <class Handle, class Message>
  Handle listener(std::function<void(const Message&)> heard) {
    return system_.spawn(&listen<Handle, Message>, std::move(heard));
  }
  /// Ends an actor with a reason, as somebody linked to it would.
  template <class Handle>
  void end(const Handle& actor, caf::error reason) {
    caf::anon_send(caf::actor_cast<caf::actor>(actor), caf::exit_msg{actor.address(), std::move(reason)});
    run();
  }
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
