#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {

/// Decides what begins, or ends, at one step of all ranks (a policy, the view, the run), one wish after the other: it
/// holds every device actor, hears from each which step it takes next, lies beyond the farthest of them with its order,
/// and lets all continue. Where one rank cannot take the order nobody gets it. It also passes verdicts on evaluations
/// on to all devices. On rank 0. Ends with Error{timeout} that names the ranks which do not answer in time.
using StepCoordinator = ActorOf<Takes<JoinSteps>, Takes<StepsHeld>, Takes<EndWish>, Takes<PolicyWish>,
                                Takes<RebuildWish>, Takes<EvaluationVerdict>, Takes<AnswersOverdue>>;
/// How devices see it.
using StepCoordinatorPeer = ActorOf<Takes<JoinSteps>, Takes<StepsHeld>, Takes<EndWish>>;
/// How it sees them.
using StepOrderReceiver = ActorOf<Takes<HoldSteps>, Takes<StepOrder>, Takes<EvaluationVerdict>>;

/// What a step coordinator works with.
struct StepCoordinatorParts {
  Schedule schedule;
  std::vector<std::string> hosts;                  // by rank, for messages
  std::chrono::milliseconds answer_within{30000};  // of all ranks, to one wish
  std::uint32_t rows = 0;                          // a rank and step, that policies are checked with
  TraceRow* trace = nullptr;                       // null: nothing is noted
};

/// How many wishes may wait for others; more are refused.
inline constexpr std::size_t kWishesKept = 16;

/// Wishes wait until all ranks have joined.
StepCoordinator spawn_step_coordinator(caf::actor_system& system, StepCoordinatorParts parts);

}  // namespace troupe
