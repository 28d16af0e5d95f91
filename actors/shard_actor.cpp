#include "actors/shard_actor.hpp"

#include <vector>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

struct ShardState {
  static constexpr const char* name = "shard";
  std::uint64_t version = 0;          // committed steps that the stripe holds
  std::vector<StripeMemory> stripes;  // ours again, once retired
};
using Self = ShardActor::stateful_pointer<ShardState>;

ShardActor::behavior_type shard_actor(Self self, Exchange* exchange) {
  end_with_own_errors(self);
  return {[=](const Committed& committed) { self->state.version = committed.step.value + 1; },
          [=](const RetireStripe& retire) { self->state.stripes = exchange->retire(retire.why); }};
}

}  // namespace

ShardActor spawn_shard(caf::actor_system& system, Exchange& exchange) { return system.spawn(shard_actor, &exchange); }

}  // namespace troupe
