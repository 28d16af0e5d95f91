#pragma once

#include <vector>

#include "actors/device_actor.hpp"
#include "actors/evaluator_actor.hpp"
#include "actors/messages.hpp"

namespace troupe {

/// Where ranks know their own sums only: every rank's device tells rank 0's gatherer, which tells in their stead of
/// each step, with the sums over all ranks, once all have committed it; of a test result and of the end behind the
/// steps that they follow. On rank 0.
using SumsGatherer = ActorOf<Takes<RankSums>, Takes<TestResult>, Takes<DeviceFinished>>;

/// Who is told, in this order.
struct GathererAudience {
  std::vector<CommitReceiver> committed;
  std::vector<TestReceiver> tested;
  std::vector<FinishReceiver> finished;  // when rank 0's device has, and all totals are told
};

/// Of `ranks` ranks, which begin with step `first`.
SumsGatherer spawn_sums_gatherer(caf::actor_system& system, ViewId view, std::uint32_t ranks, Step first,
                                 GathererAudience audience);

}  // namespace troupe
