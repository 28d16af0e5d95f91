#pragma once

#include <caf/actor_system_config.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "actors/caf_compatibility.hpp"

namespace troupe {

/// Prepares an actor system so that its actors can exchange messages with those of other processes: a node id, the
/// messages of groups, names for errors, and CAF's scheduling policy `sharing`. Call it in every process, before the
/// system is made. Your own messages are added by add_messages(config, MessageName<T>{"app.T"}, ...), also in every
/// process.
void configure_group(caf::actor_system_config& config);

/// Lets other processes of the group spawn actors of this kind here by `type` (Group::spawn_at): a function as for
/// system.spawn, with or without `self` first; its other parameters must have exactly the types of the arguments of
/// spawn_at. Call it before the actor system is made. Throws Error{invalid} if the name is in use.
template <class Behavior>
void register_actor(caf::actor_system_config& config, const std::string& type, Behavior behavior);
/// The same for a class with a constructor (actor_config&, Args...).
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
