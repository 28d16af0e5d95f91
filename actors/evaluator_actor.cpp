#include "actors/evaluator_actor.hpp"

#include <map>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

struct EvaluatorState {
  static constexpr const char* name = "evaluator";
  std::map<std::uint64_t, std::map<std::uint32_t, TestPart>> parts;  // by step, then rank
};
using EvaluatorSelf = EvaluatorActor::stateful_pointer<EvaluatorState>;

TestPart part_of(Rank rank, const Evaluated& x) {
  return {rank.value, x.step.value, x.sums.loss, x.sums.correct, x.sums.samples};
}

void take(EvaluatorSelf self, std::uint32_t ranks, const std::vector<TestReceiver>& receivers, const TestPart& part) {
  auto& parts = self->state.parts[part.step];
  parts[part.rank] = part;
  if (parts.size() < ranks) return;
  StepSums sums;
  for (const auto& [rank, one] : parts) {
    sums.loss += one.loss;
    sums.correct += one.correct;
    sums.samples += one.samples;
  }
  self->state.parts.erase(part.step);
  for (const TestReceiver& receiver : receivers) self->send(receiver, TestResult{{part.step}, sums});
}

EvaluatorActor::behavior_type evaluator(EvaluatorSelf self, std::uint32_t ranks, std::vector<TestReceiver> receivers,
                                        TraceRow* trace) {
  end_with_own_errors(self);
  return {[=](const Evaluated& x) {
            const TraceSpan span(trace, "add up test", {.step = x.step.value});
            take(self, ranks, receivers, part_of({0}, x));
          },
          [=](const TestPart& part) {
            const TraceSpan span(trace, "add up test", {.step = part.step});
            take(self, ranks, receivers, part);
          }};
}

EvaluatorActor::behavior_type remote_evaluator(EvaluatorSelf self, Rank rank, TestPartReceiver coordinator,
                                               TraceRow* trace) {
  end_with_own_errors(self);
  return {[=](const Evaluated& x) {
            const TraceSpan span(trace, "send test", {.step = x.step.value});
            self->send(coordinator, part_of(rank, x));
          },
          [=](const TestPart& part) { self->send(coordinator, part); }};
}

}  // namespace

EvaluatorActor spawn_evaluator(caf::actor_system& system, std::uint32_t ranks, std::vector<TestReceiver> receivers,
                               TraceRow* trace) {
  return system.spawn(evaluator, ranks, std::move(receivers), trace);
}
EvaluatorActor spawn_remote_evaluator(caf::actor_system& system, Rank rank, TestPartReceiver coordinator,
                                      TraceRow* trace) {
  return system.spawn(remote_evaluator, rank, std::move(coordinator), trace);
}

}  // namespace troupe
