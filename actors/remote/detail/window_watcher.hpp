#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>

namespace troupe::remote {

/// The actor that answers requests for space in a window (RemoteActors::window_watcher).
caf::actor spawn_window_watcher(caf::actor_system& system);

}  // namespace troupe::remote
