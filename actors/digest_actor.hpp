#pragma once

#include <string>
#include <vector>

#include "actors/messages.hpp"

namespace troupe {

/// Rank 0's: is told every rank's digest of its weights, and ends with Error{device_fault} when those of a step differ,
/// naming tensor and rank: what was trained since is worth nothing.
using DigestActor = ActorOf<Takes<RankDigest>>;

/// For `ranks` ranks; `tensors`: their names, in the layout's order.
DigestActor spawn_digests(caf::actor_system& system, std::uint32_t ranks, std::vector<std::string> tensors);

}  // namespace troupe
