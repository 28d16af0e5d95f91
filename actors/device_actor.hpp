#pragma once

#include <vector>

#include "actors/messages.hpp"
#include "actors/point_messenger.hpp"
#include "runtime/device.hpp"
#include "runtime/exchange.hpp"
#include "runtime/schedule.hpp"

namespace troupe {

/// Enqueues whole steps on the device's stream, as far ahead of it as its credits allow; no mailbox and no host wait
/// lies between a gradient and its update. Ends with the code of the first step that fails.
using DeviceActor =
    ActorOf<Takes<BatchLease>, Takes<StepReached>, Takes<EvaluationReached>, Takes<Begin>, Takes<StopRequest>>;
using CommitReceiver = ActorOf<Takes<Committed>>;
using EvaluationReceiver = ActorOf<Takes<Evaluated>>;
using FinishReceiver = ActorOf<Takes<DeviceFinished>>;

/// How many steps may be enqueued and not yet committed.
inline constexpr std::uint64_t kStepsAhead = 3;
static_assert(kStepsAhead < StepExchange::kStepsKept);

/// Evaluations' sums, as many as may be under way when every step ends an epoch.
inline constexpr std::uint64_t kEvaluationsKept = kStepsAhead + 1;

/// What a device actor works with; all outlive it.
struct DeviceParts {
  Stream& stream;
  Replica& replica;
  StepExchange& exchange;
  AddressSpace& space;
  PointMessenger<StepReached, kStepsAhead + 1>& steps;
  PointMessenger<EvaluationReached, kEvaluationsKept + 1>& evaluations;
  Memory evaluation_sums;  // kEvaluationsKept StepSums
  Schedule schedule;
};

/// Who is told, in this order, and never answers.
struct DeviceAudience {
  std::vector<CommitReceiver> committed;
  EvaluationReceiver evaluated;
  std::vector<FinishReceiver> finished;
};

DeviceActor spawn_device(caf::actor_system& system, const DeviceParts& parts, DeviceAudience audience);

}  // namespace troupe
