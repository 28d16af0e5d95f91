#pragma once

#include <vector>

#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"

namespace troupe {

/// Adds up the results of the ranks on their parts of the test set. Every rank's evaluator sends its part to rank 0's,
/// which adds the parts in rank order and sends the result when all have arrived. Weighted by samples, not by ranks.
using EvaluatorActor = ActorOf<Takes<Evaluated>, Takes<TestPart>>;
using TestPartReceiver = ActorOf<Takes<TestPart>>;
using TestReceiver = ActorOf<Takes<TestResult>>;

/// Rank 0's evaluator for `ranks` ranks; every result is sent to each of `told`.
EvaluatorActor spawn_evaluator(caf::actor_system& system, std::uint32_t ranks, std::vector<TestReceiver> receivers,
                               TraceRow* trace = nullptr);
/// The evaluator of another rank; `coordinator` is rank 0's evaluator.
EvaluatorActor spawn_remote_evaluator(caf::actor_system& system, Rank rank, TestPartReceiver coordinator,
                                      TraceRow* trace = nullptr);

}  // namespace troupe
