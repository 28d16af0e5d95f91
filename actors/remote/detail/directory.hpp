#pragma once

#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>

namespace troupe::remote {

/// Names of a process's actors: (publish, name, actor), and (find, name), which is answered when the name is published;
/// (find, name, message types) is answered with an error if the actor accepts other messages than these.
using Publish = caf::atom_constant<caf::atom("publish")>;
using Find = caf::atom_constant<caf::atom("find")>;

/// A system does not wait for it at shutdown; an exit message ends it.
caf::actor spawn_directory(caf::actor_system& system);

}  // namespace troupe::remote
