#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <stdexcept>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

namespace troupe::test::semantics {
namespace {

struct MateState {
  std::string log;
};

caf::behavior mate(caf::stateful_actor<MateState>* self) {
  const auto log = [self](const std::string& what) { self->state.log += what + " "; };
  self->set_down_handler([=](const caf::down_msg& down) { log("down:" + brief(down.reason)); });
  return {
      [=](Tie, const caf::actor& other) { self->link_to(other); },
      [=](Untie, const caf::actor& other) { self->unlink_from(other); },
      [=](Watch, const caf::actor& other) { self->monitor(other); },
      [=](Unwatch, const caf::actor& other) { self->demonitor(other); },
      [=](Trap) { self->set_exit_handler([=](const caf::exit_msg& exit) { log("exit:" + brief(exit.reason)); }); },
      [=](Quit, const caf::error& why) { self->quit(why); },
      [=](Throw) -> caf::result<void> { throw std::runtime_error("thrown on demand"); },
      [=](Note, const std::string& what) { log(what); },
      [=](Log) { return self->state.log; },
      [=](Tell, const caf::actor& other, const std::string& what) { self->send(other, Note::value, what); },
      [=](Echo, std::int32_t number) { return number; },
      [=](Expel, const caf::actor& other, const caf::error& why) { self->send_exit(other, why); },
      [=](Never) -> caf::result<std::int32_t> {
        self->make_response_promise();
        return caf::delegated<std::int32_t>{};
      },
  };
}

}  // namespace

void add_common_roles(caf::actor_system_config& config) { register_actor(config, "mate", mate); }

}  // namespace troupe::test::semantics
