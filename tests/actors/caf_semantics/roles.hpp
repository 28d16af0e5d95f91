#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>
#include <caf/error.hpp>
#include <cstdint>

#include "actors/group/group.hpp"

// The actors that each side can spawn, by role; each file adds its own to the configuration.
namespace troupe::test::semantics {

void add_common_roles(caf::actor_system_config& config);
void add_flood_roles(caf::actor_system_config& config);
void add_request_roles(caf::actor_system_config& config);
void add_message_roles(caf::actor_system_config& config);
void add_typed_roles(caf::actor_system_config& config);
void add_size_roles(caf::actor_system_config& config);
void add_difference_roles(caf::actor_system_config& config);
void add_content_roles(caf::actor_system_config& config);
void add_adapter_roles(caf::actor_system_config& config);
void add_behavior_roles(caf::actor_system_config& config);
void add_stream_roles(caf::actor_system_config& config);
void add_mass_roles(caf::actor_system_config& config);
void add_handle_roles(caf::actor_system_config& config);

/// For lookups at the far side: "the calculator", which is typed, and "the worker".
void publish_typed_actors(Group& group);

// The role "mate": does on request everything that one actor can do to another one, and keeps a log.
using Tie = caf::atom_constant<caf::atom("tie")>;          // (Tie, actor): links itself
using Untie = caf::atom_constant<caf::atom("untie")>;      // (Untie, actor): unlinks itself
using Watch = caf::atom_constant<caf::atom("watch")>;      // (Watch, actor): monitors; a down message is logged
using Unwatch = caf::atom_constant<caf::atom("unwatch")>;  // (Unwatch, actor)
using Trap = caf::atom_constant<caf::atom("trap")>;        // from now on exit messages are logged and nothing more
using Quit = caf::atom_constant<caf::atom("quit")>;        // (Quit, error): ends with that error
using Throw = caf::atom_constant<caf::atom("throw")>;      // ends by an exception
using Note = caf::atom_constant<caf::atom("note")>;        // (Note, text): logged
using Log = caf::atom_constant<caf::atom("log")>;          // what was logged, each with a space behind it
using Tell = caf::atom_constant<caf::atom("tell")>;        // (Tell, actor, text): sends it (Note, text)
using Echo = caf::atom_constant<caf::atom("echo")>;        // (Echo, number): the number
using Expel = caf::atom_constant<caf::atom("expel")>;      // (Expel, actor, error): sends it an exit message
using Never = caf::atom_constant<caf::atom("never")>;      // never answered

/// For actors that must fulfil a promise; errors of a category of this suite.
inline caf::error own_error(std::uint8_t code, std::string text) {
  return {code, caf::atom("semantics"), caf::make_message(std::move(text))};
}

}  // namespace troupe::test::semantics
