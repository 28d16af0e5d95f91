#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>
#include <memory>
#include <utility>

#include "actors/remote/remote_actors.hpp"
#include "tools/bench/messages/bouncers.hpp"
#include "tools/bench/messages/end.hpp"

namespace troupe::bench {

/// One worker, quiet.
void configure_one_worker(caf::actor_system_config& config);

/// Who runs the actors that are measured: the scheduler, or a control lane.
struct Stage {
  caf::actor_system& system;
  RemoteActors* inline_with = nullptr;

  template <class Function, class... Arguments>
  caf::actor spawn(Function function, Arguments&&... arguments) const {
    if (inline_with != nullptr) return inline_with->spawn_inline(function, std::forward<Arguments>(arguments)...);
    return system.spawn(function, std::forward<Arguments>(arguments)...);
  }
};

/// An actor that ends with its handle here.
class Ending {
 public:
  explicit Ending(caf::actor actor) : actor_(std::move(actor)) {}
  ~Ending() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  const caf::actor& get() const noexcept { return actor_; }

 private:
  caf::actor actor_;
};

/// Round trips until `what->again` says no.
template <class Payload>
void run_bounce(Blocking& blocking, const Stage& stage, const std::shared_ptr<Bounce<Payload>>& what,
                Clock::duration patience) {
  const Ending near(stage.spawn(bounce<Payload>, what));
  caf::anon_send(near.get(), Go::value);
  what->finish.wait(blocking, patience);
  TROUPE_CHECK(what->intact, Code::corrupt, "an echo came back with other content");
}

/// The actor at the other end of a case whose payload is no tensor.
caf::actor spawn_far(const Stage& stage, const EndCase& what);
/// Measures such a case against it.
Figures measure_near(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                     Clock::duration patience);

}  // namespace troupe::bench
