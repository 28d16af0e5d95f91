#include "actors/balancer_actor.hpp"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

/// The number of steps in one report: few if shares depend on it, more if it is only for people.
constexpr std::uint64_t kStepsAReport = 4;
constexpr std::uint64_t kStepsAReportForPeople = 32;

struct BalancerState {
  static constexpr const char* name = "balancer";
  BalancerReceivers receivers;
  std::optional<SampleLedger> ledger;
  std::optional<LoadBalancer> balancer;             // of rank 0
  std::map<std::uint32_t, LedgerReceiver> members;  // at rank 0: those of the other ranks, by rank
  StreamTimes before;                               // at the last committed step
  RankTimes report;                                 // the report that is being filled
};
using BalancerSelf = BalancerActor::stateful_pointer<BalancerState>;

void apply(BalancerSelf self, const LedgerUpdate& ledger_update) {
  BalancerState& s = self->state;
  s.ledger->append({{ledger_update.first}, ledger_update.rows}, {ledger_update.until});
  if (s.receivers.loader) self->send(s.receivers.loader, ledger_update);
}

LedgerUpdate update_of(const LoadBalancer& balancer) {
  return {balancer.span().first.value, balancer.until().value, balancer.span().rows};
}

void send_to_all(BalancerSelf self) {
  BalancerState& s = self->state;
  const LedgerUpdate ledger_update = update_of(*s.balancer);
  for (const auto& [rank, member] : s.members) self->send(member, ledger_update);
  apply(self, ledger_update);
}

void take(BalancerSelf self, const BalancerParts& parts, const RankTimes& report) {
  const std::optional<ShareWindow> window = self->state.balancer->take(report);
  if (!window) return;
  if (window->change) send_to_all(self);
  if (parts.windows) parts.windows(*window);
}

/// Adds a step to the report, and sends the report when it is full.
void add_step(BalancerSelf self, const BalancerParts& parts, Step step) {
  BalancerState& s = self->state;
  const StreamTimes now = parts.times();
  const StreamTimes spent = now - std::exchange(s.before, now);
  if (s.report.waits_us.empty()) s.report = {.rank = parts.self.value, .first = step.value};
  const std::array<StreamTimes::Span, kStepParts> by_part{spent.load, spent.compute, spent.update, spent.copy,
                                                          spent.exchange};
  for (std::size_t part = 0; part < kStepParts; ++part) s.report.spent_ns[part] += by_part[part].count();
  s.report.samples += s.ledger->part(step, parts.self).count;
  s.report.waits_us.push_back(
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(spent.exchange).count()));
  const std::uint64_t steps = parts.options.adapts ? kStepsAReport : kStepsAReportForPeople;
  if (s.report.waits_us.size() < steps) return;
  const RankTimes full = std::exchange(s.report, {});
  if (s.balancer)
    take(self, parts, full);
  else
    self->send(s.receivers.coordinator, full);
}

BalancerActor::behavior_type balancer(BalancerSelf self, BalancerParts parts) {
  end_with_own_errors(self);
  self->state.ledger = parts.ledger;
  if (parts.self.value == 0) self->state.balancer.emplace(parts.schedule, parts.options);
  return {[=](const Begin&) { self->state.before = parts.times(); },
          [=](const Committed& committed) {
            const TraceSpan span(parts.trace, "note times", {.step = committed.step.value});
            BalancerState& s = self->state;
            add_step(self, parts, committed.step);
            if (s.balancer && s.balancer->committed(committed.step)) send_to_all(self);
          },
          [=](const JoinLedger& join) {
            BalancerState& s = self->state;
            auto member = caf::actor_cast<LedgerReceiver>(self->current_sender());
            if (!s.balancer || !member) return;
            self->send(member, update_of(*s.balancer));  // the decisions that were made before it joined
            s.members[join.rank] = std::move(member);
          },
          [=](const RankTimes& report) {
            const TraceSpan span(parts.trace, "take times");
            if (self->state.balancer) take(self, parts, report);
          },
          [=](const LedgerUpdate& ledger_update) {
            const TraceSpan span(parts.trace, "pass ledger on");
            apply(self, ledger_update);
          },
          [=](const BalancerReceivers& receivers) {
            self->state.receivers = receivers;
            if (receivers.coordinator && parts.options.adapts)
              self->send(receivers.coordinator, JoinLedger{parts.self.value});
          }};
}

}  // namespace

BalancerActor spawn_balancer(caf::actor_system& system, BalancerParts parts) {
  return system.spawn(balancer, std::move(parts));
}

}  // namespace troupe
