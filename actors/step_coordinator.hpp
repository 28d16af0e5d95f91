#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {

/// Decides what begins or ends at one step of all ranks (a policy, the view, the run), one request after the other. It
/// holds every device actor, asks each for its next step, chooses a step that none has begun, and lets all continue
/// with that order. If one rank cannot follow the order, no rank gets it. It also passes verdicts on evaluations to all
/// devices. On rank 0. If ranks do not answer in time it ends with Error{timeout} that names them.
using StepCoordinator = ActorOf<Takes<JoinSteps>, Takes<StepsHeld>, Takes<EndRequest>, Takes<PolicyRequest>,
                                Takes<RebuildRequest>, Takes<EvaluationVerdict>, Takes<AnswersOverdue>>;
/// The coordinator, for devices.
using StepCoordinatorPeer = ActorOf<Takes<JoinSteps>, Takes<StepsHeld>, Takes<EndRequest>>;
/// The devices, for the coordinator.
using StepOrderReceiver = ActorOf<Takes<HoldSteps>, Takes<StepOrder>, Takes<EvaluationVerdict>>;

/// What a step coordinator needs.
struct StepCoordinatorParts {
  Schedule schedule;
  std::vector<std::string> hosts;                  // by rank, for messages
  std::chrono::milliseconds answer_within{30000};  // of all ranks, to one request
  std::uint32_t rows = 0;                          // of a rank in a step, for checking policies
  TraceRow* trace = nullptr;                       // null: nothing is traced
};

/// How many requests may wait; more are refused.
inline constexpr std::size_t kRequestsKept = 16;

/// Requests wait until all ranks have joined.
StepCoordinator spawn_step_coordinator(caf::actor_system& system, StepCoordinatorParts parts);

}  // namespace troupe
