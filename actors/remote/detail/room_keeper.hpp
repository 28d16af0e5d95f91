#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>

namespace troupe::remote {

/// The actor that answers requests for room in a window (RemoteActors::rooms).
caf::actor spawn_room_keeper(caf::actor_system& system);

}  // namespace troupe::remote
