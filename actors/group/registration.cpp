#include "actors/group/registration.hpp"

#include <caf/atom.hpp>

#include "actors/group/detail/messages.hpp"
#include "actors/remote/remote_actors.hpp"
#include "runtime/base/error.hpp"

namespace troupe {

void configure_group(caf::actor_system_config& config) {
  configure_remote(config);
  add_messages_without_lists(config, MessageName<group::Relay>{"troupe.group.Relay"},
                             MessageName<group::Unfinished>{"troupe.group.Unfinished"});
  config.set("scheduler.policy", caf::atom("sharing"));
}

void detail::check_actor_type_is_new(const caf::actor_system_config& config, const std::string& type) {
  TROUPE_CHECK(!type.empty() && config.actor_factories.count(type) == 0, Code::invalid, "the actor type \"", type,
               "\" is registered already, or has no name; give every type a name of its own");
}

}  // namespace troupe
