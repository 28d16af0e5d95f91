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
void tell(GathererSelf self, ViewId view, const GathererAudience& audience) {
  GathererState& s = self->state;
  while (const auto total = s.totals->take()) {
    for (const auto& receiver : audience.committed) self->send(receiver, Committed{view, total->step, total->sums});
  }
  for (; !s.tests.empty() && s.tests.front().step < s.totals->next(); s.tests.pop_front()) {
    for (const auto& receiver : audience.tested) self->send(receiver, s.tests.front());
  }
  if (!s.end || !s.totals->has_all_of({0})) return;
  for (const auto& receiver : audience.finished) self->send(receiver, *s.end);
  s.end.reset();
}

SumsGatherer::behavior_type sums_gatherer(GathererSelf self, ViewId view, std::uint32_t ranks, Step first,
                                          GathererAudience audience) {
  end_with_own_errors(self);
  self->state.totals.emplace(ranks, first);
  return {[=](const RankSums& told) {
            self->state.totals->add({told.rank}, {told.step},
                                    {.loss = told.loss, .correct = told.correct, .samples = told.samples});
            tell(self, view, audience);
          },
          [=](const TestResult& result) {
            self->state.tests.push_back(result);
            tell(self, view, audience);
          },
          [=](const DeviceFinished& end) {
            self->state.end = end;
            tell(self, view, audience);
          }};
}

}  // namespace

SumsGatherer spawn_sums_gatherer(caf::actor_system& system, ViewId view, std::uint32_t ranks, Step first,
                                 GathererAudience audience) {
  return system.spawn(sums_gatherer, view, ranks, first, std::move(audience));
}

}  // namespace troupe
