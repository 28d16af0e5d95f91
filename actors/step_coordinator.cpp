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
struct Request {
  StepOrderKind kind = StepOrderKind::end;
  PolicySettings policy{};  // for switch_policy
  std::string reason{};
  std::function<void(const StepOutcome&)> done{};
};

struct CoordinatorState {
  static constexpr const char* name = "step_coordinator";
  std::map<std::uint32_t, StepOrderReceiver> members;  // by rank
  std::deque<Request> requests;                        // the first one is being decided while `holding`
  bool holding = false;
  std::uint32_t number = 0;                    // of the hold
  std::map<std::uint32_t, StepsHeld> answers;  // to this hold
  bool ends = false;                           // the end of the run is decided
  bool rebuilds = false;                       // the end of the view is decided
};
using CoordinatorSelf = StepCoordinator::stateful_pointer<CoordinatorState>;

void refuse(const Request& request, Code code, const std::string& why) {
  if (request.done) request.done({{code, why}, 0});
}

/// Whether the first request has become pointless. A request to end is made again in the next view.
bool is_pointless(const CoordinatorState& s) {
  if (!s.ends && !s.rebuilds) return false;
  refuse(s.requests.front(), Code::invalid,
         s.ends ? "the run is about to end" : "the run is about to go over to another view: ask again when it has");
  return true;
}

void begin_next(CoordinatorSelf self, const StepCoordinatorParts& parts) {
  CoordinatorState& s = self->state;
  if (s.holding || s.members.size() < parts.hosts.size()) return;
  while (!s.requests.empty() && is_pointless(s)) s.requests.pop_front();
  if (s.requests.empty()) return;
  s.holding = true;
  s.answers.clear();
  const Request& request = s.requests.front();
  const HoldSteps hold{++s.number, request.kind, request.policy};
  for (const auto& [rank, member] : s.members) self->send(member, hold);
  self->delayed_send(self, parts.answer_within, AnswersOverdue{s.number});
}

void add_request(CoordinatorSelf self, const StepCoordinatorParts& parts, Request request) {
  CoordinatorState& s = self->state;
  if (s.requests.size() >= kRequestsKept)
    return refuse(request, Code::invalid, text(kRequestsKept, " requests wait for an answer; ask again later"));
  s.requests.push_back(std::move(request));
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
StepOrder decide(const Request& request, const Common& all, std::uint32_t number) {
  StepOrder order{.number = number};
  const bool switches = request.kind == StepOrderKind::switch_policy;
  const bool rebuilds = request.kind == StepOrderKind::rebuild;
  const std::uint64_t at = switches ? all.next + 1 : all.next;
  if (!all.refusal.empty()) {
    refuse(request, Code::invalid, all.refusal);
  } else if (switches ? at > all.last : rebuilds && at >= all.last) {
    refuse(request, Code::invalid,
           text("the run ends with step ", all.last, ", before another ", rebuilds ? "view" : "policy", " can begin"));
  } else if (switches || at < all.last) {
    order.kind = request.kind;
    order.at = at;
    order.policy = request.policy;
    order.reason = request.reason;
    if (request.done) request.done({{}, at});
  }
  return order;
}

/// When all ranks have answered, all of them hold their steps, so the answers remain true until the order arrives. Only
/// then may the next request be decided: it has a hold of its own, whose answers include the effect of this order.
void take_answer(CoordinatorSelf self, const StepCoordinatorParts& parts, const StepsHeld& answer) {
  CoordinatorState& s = self->state;
  if (!s.holding || answer.number != s.number || !s.members.contains(answer.rank)) return;
  s.answers[answer.rank] = answer;
  if (s.answers.size() < s.members.size()) return;
  const Request request = std::move(s.requests.front());
  s.requests.pop_front();
  s.holding = false;
  const StepOrder order = decide(request, common_answer(s, parts), s.number);
  s.ends = s.ends || request.kind == StepOrderKind::end;
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

void on_policy(CoordinatorSelf self, const StepCoordinatorParts& parts, PolicyRequest& given) {
  const auto ranks = static_cast<std::uint32_t>(parts.hosts.size());
  Request request{StepOrderKind::switch_policy,
                  resolved(given.policy, ranks),                    // so that all ranks, and the answer, mean the
                  std::move(given.reason), std::move(given.done)};  // same numbers
  if (const std::string why = check_policy(request.policy, ranks, parts.rows); !why.empty())
    return refuse(request, Code::invalid, why);
  if (request.policy.distributed_after != 0)
    return refuse(request, Code::invalid, "a switch is at once: leave distributed_after out");
  add_request(self, parts, std::move(request));
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
          [=](const EndRequest&) {
            const TraceSpan span(parts.trace, "request to end");
            CoordinatorState& s = self->state;
            const bool known = s.ends || std::any_of(s.requests.begin(), s.requests.end(),
                                                     [](const Request& w) { return w.kind == StepOrderKind::end; });
            if (!known) s.requests.push_back({StepOrderKind::end});  // at most one for all ranks, so it needs no limit
            begin_next(self, parts);
          },
          [=](PolicyRequest& request) {
            const TraceSpan span(parts.trace, "request for a policy");
            on_policy(self, parts, request);
          },
          [=](RebuildRequest& request) {
            const TraceSpan span(parts.trace, "request for a view");
            add_request(self, parts, {StepOrderKind::rebuild, {}, std::move(request.reason), std::move(request.done)});
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
