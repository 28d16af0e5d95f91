#include "actors/digest_actor.hpp"

#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "runtime/exchange/replica_digests.hpp"

namespace troupe {
namespace {

struct DigestState {
  static constexpr const char* name = "digests";
  std::optional<ReplicaDigests> digests;
};
using DigestSelf = DigestActor::stateful_pointer<DigestState>;

DigestActor::behavior_type digest_actor(DigestSelf self, std::uint32_t ranks, std::vector<std::string> tensors) {
  end_with_own_errors(self);
  self->state.digests.emplace(ranks, std::move(tensors));
  return {[=](const RankDigest& digest) {
    if (const auto wrong = self->state.digests->add(digest))
      self->quit(
          to_caf(Status{Code::device_fault,
                        *wrong + ": a rank's memory, or its device, is not to be trusted; resume from a checkpoint "
                                 "of before (update.digest_steps found it)"}));
  }};
}

}  // namespace

DigestActor spawn_digests(caf::actor_system& system, std::uint32_t ranks, std::vector<std::string> tensors) {
  return system.spawn(digest_actor, ranks, std::move(tensors));
}

}  // namespace troupe
