#include "actors/sums_gatherer.hpp"

#include <deque>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "runtime/exchange/step_totals.hpp"

namespace troupe {
namespace {

struct GathererState {
  static constexpr const char* name = "sums_gatherer";
  std::optional<StepTotals> totals;
  std::deque<TestResult> tests;  // their steps were not passed on yet
  std::optional<DeviceFinished> end;
};
using GathererSelf = SumsGatherer::stateful_pointer<GathererState>;

/// Passes on everything that is complete by now.
void send_totals(GathererSelf self, ViewId view, const GathererReceivers& receivers) {
  GathererState& s = self->state;
  while (const auto total = s.totals->take()) {
    for (const auto& receiver : receivers.committed) self->send(receiver, Committed{view, total->step, total->sums});
  }
  for (; !s.tests.empty() && s.tests.front().step < s.totals->next(); s.tests.pop_front()) {
    for (const auto& receiver : receivers.tested) self->send(receiver, s.tests.front());
  }
  if (!s.end || !s.totals->has_all_of({0})) return;
  for (const auto& receiver : receivers.finished) self->send(receiver, *s.end);
  s.end.reset();
}

SumsGatherer::behavior_type sums_gatherer(GathererSelf self, ViewId view, std::uint32_t ranks, Step first,
                                          GathererReceivers receivers) {
  end_with_own_errors(self);
  self->state.totals.emplace(ranks, first);
  return {[=](const RankSums& own) {
            self->state.totals->add({own.rank}, {own.step},
                                    {.loss = own.loss, .correct = own.correct, .samples = own.samples});
            send_totals(self, view, receivers);
          },
          [=](const TestResult& result) {
            self->state.tests.push_back(result);
            send_totals(self, view, receivers);
          },
          [=](const DeviceFinished& end) {
            self->state.end = end;
            send_totals(self, view, receivers);
          }};
}

}  // namespace

SumsGatherer spawn_sums_gatherer(caf::actor_system& system, ViewId view, std::uint32_t ranks, Step first,
                                 GathererReceivers receivers) {
  return system.spawn(sums_gatherer, view, ranks, first, std::move(receivers));
}

}  // namespace troupe
