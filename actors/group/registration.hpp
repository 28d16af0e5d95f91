#pragma once

#include <caf/actor_system_config.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "actors/dialect.hpp"

namespace troupe {

/// What an actor system needs whose actors shall talk to those of other processes: a node id, the messages of groups,
/// names for errors, CAF's policy `sharing`. In every process, before the system is made. Messages of your own are
/// added by add_messages(config, MessageName<T>{"app.T"}, ...), also in every process.
void configure_group(caf::actor_system_config& config);

/// Lets other processes of the group spawn actors of this kind here by `type` (Group::spawn_at): a function as
/// system.spawn takes it, with or without `self` first, whose other parameters are what the arguments of spawn_at must
/// be, one for one. Before the actor system is made. Throws Error{invalid} when the name is taken.
template <class Behavior>
void register_actor(caf::actor_system_config& config, const std::string& type, Behavior behavior);
/// The same for a class that is constructed with (actor_config&, Args...).
template <class Actor, class... Args>
void register_actor(caf::actor_system_config& config, const std::string& type);

namespace detail {
void check_actor_type_is_new(const caf::actor_system_config& config, const std::string& type);
}

template <class Behavior>
void register_actor(caf::actor_system_config& config, const std::string& type, Behavior behavior) {
  detail::check_actor_type_is_new(config, type);
  config.add_actor_type(type, std::move(behavior));
}

template <class Actor, class... Args>
void register_actor(caf::actor_system_config& config, const std::string& type) {
  detail::check_actor_type_is_new(config, type);
  config.add_actor_type<Actor, const std::decay_t<Args>&...>(type);
}

}  // namespace troupe
