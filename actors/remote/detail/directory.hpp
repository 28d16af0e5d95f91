#pragma once

#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>

namespace troupe::remote {

/// Names of a process's actors: (publish, name, actor), and (find, name), which is answered when the name is published;
/// (find, name, message types) is answered with an error when its actor takes other messages than these.
using Publish = caf::atom_constant<caf::atom("publish")>;
using Find = caf::atom_constant<caf::atom("find")>;

/// Not counted among the actors that a system waits for; ends by an exit message.
caf::actor spawn_directory(caf::actor_system& system);

}  // namespace troupe::remote
