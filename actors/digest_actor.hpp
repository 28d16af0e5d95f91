#pragma once

#include <string>
#include <vector>

#include "actors/messages.hpp"

namespace troupe {

/// Rank 0's actor that receives every rank's digests of its weights. It ends with Error{device_fault} if the digests of
/// a step differ, naming tensor and rank: training after that step is useless.
using DigestActor = ActorOf<Takes<RankDigest>>;

/// For `ranks` ranks; `tensors`: the names of the weights, in the layout's order.
DigestActor spawn_digests(caf::actor_system& system, std::uint32_t ranks, std::vector<std::string> tensors);

}  // namespace troupe
