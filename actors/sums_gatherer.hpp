#pragma once

#include <vector>

#include "actors/device_actor.hpp"
#include "actors/evaluator_actor.hpp"
#include "actors/messages.hpp"

namespace troupe {

/// Used if ranks know only their own sums. Every rank's device sends its sums to rank 0's gatherer. When all ranks have
/// committed a step, the gatherer passes it on with the sums over all ranks; test results and the end follow the steps
/// to which they belong. On rank 0.
using SumsGatherer = ActorOf<Takes<RankSums>, Takes<TestResult>, Takes<DeviceFinished>>;

/// The receivers, in this order.
struct GathererReceivers {
  std::vector<CommitReceiver> committed;
  std::vector<TestReceiver> tested;
  std::vector<FinishReceiver> finished;  // when rank 0's device has finished, and all totals were passed on
};

/// For `ranks` ranks, which begin with step `first`.
SumsGatherer spawn_sums_gatherer(caf::actor_system& system, ViewId view, std::uint32_t ranks, Step first,
                                 GathererReceivers receivers);

}  // namespace troupe
