#include "actors/step_coordinator.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

/// A request for something that begins or ends at one step of all ranks.
struct Wish {
  StepOrderKind kind = StepOrderKind::end;
  PolicySettings policy{};  // for switch_policy
  std::string reason{};
  std::function<void(const StepOutcome&)> told{};
};

struct CoordinatorState {
  static constexpr const char* name = "step_coordinator";
  std::map<std::uint32_t, StepOrderReceiver> members;  // by rank
  std::deque<Wish> wishes;                             // the first one is being decided while `holding`
  bool holding = false;
  std::uint32_t number = 0;                    // of the hold
  std::map<std::uint32_t, StepsHeld> answers;  // to this hold
  bool ends = false;                           // the end of the run is decided
  bool rebuilds = false;                       // the end of the view is decided
};
using CoordinatorSelf = StepCoordinator::stateful_pointer<CoordinatorState>;

void refuse(const Wish& wish, Code code, const std::string& why) {
  if (wish.told) wish.told({{code, why}, 0});
}

/// Whether the first wish has become pointless. A wish to end is made again in the next view.
bool is_pointless(const CoordinatorState& s) {
  if (!s.ends && !s.rebuilds) return false;
  refuse(s.wishes.front(), Code::invalid,
         s.ends ? "the run is about to end" : "the run is about to go over to another view: ask again when it has");
  return true;
}

void begin_next(CoordinatorSelf self, const StepCoordinatorParts& parts) {
  CoordinatorState& s = self->state;
  if (s.holding || s.members.size() < parts.hosts.size()) return;
  while (!s.wishes.empty() && is_pointless(s)) s.wishes.pop_front();
  if (s.wishes.empty()) return;
  s.holding = true;
  s.answers.clear();
  const Wish& wish = s.wishes.front();
  const HoldSteps hold{++s.number, wish.kind, wish.policy};
  for (const auto& [rank, member] : s.members) self->send(member, hold);
  self->delayed_send(self, parts.answer_within, AnswersOverdue{s.number});
}

void add_wish(CoordinatorSelf self, const StepCoordinatorParts& parts, Wish wish) {
  CoordinatorState& s = self->state;
  if (s.wishes.size() >= kWishesKept)
    return refuse(wish, Code::invalid, text(kWishesKept, " wishes wait for an answer; ask again later"));
  s.wishes.push_back(std::move(wish));
  begin_next(self, parts);
}

/// The answers of all ranks, combined.
struct Common {
  std::uint64_t next = 0;  // no rank has begun this step
  std::uint64_t last = 0;  // of the run
  std::string refusal;
};
Common common_answer(const CoordinatorState& s, const StepCoordinatorParts& parts) {
  Common all{.last = parts.schedule.steps - 1};
  for (const auto& [rank, answer] : s.answers) {
    all.next = std::max(all.next, answer.next);
    all.last = std::min(all.last, answer.last);
    if (all.refusal.empty() && !answer.refusal.empty())
      all.refusal = text("rank ", rank, " on node ", parts.hosts[rank], ": ", answer.refusal);
  }
  return all;
}

/// The order with which all ranks continue. The step before a switch is the previous policy's last one, and the policy
/// must know that when the step begins; therefore that step must not have begun either.
StepOrder decide(const Wish& wish, const Common& all, std::uint32_t number) {
  StepOrder order{.number = number};
  const bool switches = wish.kind == StepOrderKind::switch_policy;
  const bool rebuilds = wish.kind == StepOrderKind::rebuild;
  const std::uint64_t at = switches ? all.next + 1 : all.next;
  if (!all.refusal.empty()) {
    refuse(wish, Code::invalid, all.refusal);
  } else if (switches ? at > all.last : rebuilds && at >= all.last) {
    refuse(wish, Code::invalid,
           text("the run ends with step ", all.last, ", before another ", rebuilds ? "view" : "policy", " can begin"));
  } else if (switches || at < all.last) {
    order.kind = wish.kind;
    order.at = at;
    order.policy = wish.policy;
    order.reason = wish.reason;
    if (wish.told) wish.told({{}, at});
  }
  return order;
}

/// When all ranks have answered, all of them hold their steps, so the answers remain true until the order arrives. Only
/// then may the next wish be decided: it has a hold of its own, whose answers include the effect of this order.
void take_answer(CoordinatorSelf self, const StepCoordinatorParts& parts, const StepsHeld& answer) {
  CoordinatorState& s = self->state;
  if (!s.holding || answer.number != s.number || !s.members.contains(answer.rank)) return;
  s.answers[answer.rank] = answer;
  if (s.answers.size() < s.members.size()) return;
  const Wish wish = std::move(s.wishes.front());
  s.wishes.pop_front();
  s.holding = false;
  const StepOrder order = decide(wish, common_answer(s, parts), s.number);
  s.ends = s.ends || wish.kind == StepOrderKind::end;
  s.rebuilds = s.rebuilds || order.kind == StepOrderKind::rebuild;
  for (const auto& [rank, member] : s.members) self->send(member, order);
  begin_next(self, parts);
}

void on_overdue(CoordinatorSelf self, const StepCoordinatorParts& parts, std::uint32_t number) {
  CoordinatorState& s = self->state;
  if (!s.holding || number != s.number) return;
  std::string who;
  for (const auto& [rank, member] : s.members)
    if (!s.answers.contains(rank)) who += text(" rank ", rank, " on node ", parts.hosts[rank], ";");
  self->quit(
      to_caf(Status{Code::timeout, text("steps are held for an order to all ranks, and these did not answer within ",
                                        parts.answer_within.count(), " ms (faults.exchange_s):", who)}));
}

void on_policy(CoordinatorSelf self, const StepCoordinatorParts& parts, PolicyWish& given) {
  const auto ranks = static_cast<std::uint32_t>(parts.hosts.size());
  Wish wish{StepOrderKind::switch_policy, resolved(given.policy, ranks),  // so that all ranks, and the answer, mean the
            std::move(given.reason), std::move(given.told)};              // same numbers
  if (const std::string why = check_policy(wish.policy, ranks, parts.rows); !why.empty())
    return refuse(wish, Code::invalid, why);
  if (wish.policy.distributed_after != 0)
    return refuse(wish, Code::invalid, "a switch is at once: leave distributed_after out");
  add_wish(self, parts, std::move(wish));
}

StepCoordinator::behavior_type step_coordinator(CoordinatorSelf self, StepCoordinatorParts parts) {
  end_with_own_errors(self);
  return {[=](const JoinSteps& join) {
            auto member = caf::actor_cast<StepOrderReceiver>(self->current_sender());
            if (!member || join.rank >= parts.hosts.size()) return;
            const TraceSpan span(parts.trace, "rank joins");
            self->state.members[join.rank] = std::move(member);
            begin_next(self, parts);
          },
          [=](const StepsHeld& answer) {
            const TraceSpan span(parts.trace, "rank holds");
            take_answer(self, parts, answer);
          },
          [=](const EndWish&) {
            const TraceSpan span(parts.trace, "wish to end");
            CoordinatorState& s = self->state;
            const bool known = s.ends || std::any_of(s.wishes.begin(), s.wishes.end(),
                                                     [](const Wish& w) { return w.kind == StepOrderKind::end; });
            if (!known) s.wishes.push_back({StepOrderKind::end});  // at most one for all ranks, so it needs no limit
            begin_next(self, parts);
          },
          [=](PolicyWish& wish) {
            const TraceSpan span(parts.trace, "wish for a policy");
            on_policy(self, parts, wish);
          },
          [=](RebuildWish& wish) {
            const TraceSpan span(parts.trace, "wish for a view");
            add_wish(self, parts, {StepOrderKind::rebuild, {}, std::move(wish.reason), std::move(wish.told)});
          },
          [=](const EvaluationVerdict& verdict) {
            const TraceSpan span(parts.trace, "pass verdict on");
            for (const auto& [rank, member] : self->state.members) self->send(member, verdict);
          },
          [=](const AnswersOverdue& overdue) { on_overdue(self, parts, overdue.number); }};
}

}  // namespace

StepCoordinator spawn_step_coordinator(caf::actor_system& system, StepCoordinatorParts parts) {
  return system.spawn(step_coordinator, std::move(parts));
}

}  // namespace troupe
