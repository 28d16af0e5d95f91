#pragma once

#include "actors/messages.hpp"
#include "runtime/exchange/exchange.hpp"

namespace troupe {

/// In charge of this rank's stripe of a parameter group: it has lent it to the device, is told of every committed step,
/// and takes it back by `retire` when the view ends.
using ShardActor = ActorOf<Takes<Committed>, Takes<RetireStripe>>;

/// `exchange` outlives the actor.
ShardActor spawn_shard(caf::actor_system& system, Exchange& exchange);

}  // namespace troupe
