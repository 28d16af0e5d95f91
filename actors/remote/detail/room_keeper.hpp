#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>

namespace troupe::remote {

/// The actor that answers who asks for room (RemoteActors::rooms).
caf::actor spawn_room_keeper(caf::actor_system& system);

}  // namespace troupe::remote
