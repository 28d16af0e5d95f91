#include "actors/device_actor.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "actors/detail/device_digests.hpp"
#include "actors/detail/device_orders.hpp"
#include "actors/detail/device_saves.hpp"

namespace troupe {
namespace {

struct StepInFlight {
  Step step;
  Lease lease;           // kept here so that its slot is returned on this thread
  bool common = true;    // the step's sums are of all ranks
  bool reached = false;  // its point, but perhaps not that of an earlier step
};

struct DeviceState {
  static constexpr const char* name = "device";
  std::deque<BatchLease> ready;                   // as many as the loader's pool has slots
  std::deque<StepInFlight> in_flight;             // steps not yet committed
  std::deque<EvaluationReached> evaluated_early;  // before this actor knew that their steps are committed
  std::optional<Step> last;                       // the view's last step; the plan's until an earlier end is known
  std::optional<Step> next;                       // the step to enqueue
  std::optional<Step> evaluated_step;             // its evaluation's verdict decides whether another step begins
  bool consistent_there = false;                  // after that step the ranks' weights are the same
  detail::DeviceOrders orders;
  detail::DeviceSaves saves;
  detail::DeviceDigests digests;
  std::optional<PolicySettings> policy;  // of the last step
  StepCoordinatorPeer coordinator;       // null: there is none
  std::uint64_t credits = kStepsAhead;
  // Both count a pass from its first batch on, so that their difference is the oldest one whose sums were not sent.
  std::uint64_t evaluations = 0;       // number of passes that were begun
  std::uint64_t evaluations_left = 0;  // passes that were begun and whose sums were not sent
  bool begun = false;
  bool evaluating = false;  // within a pass
  bool text_open = false;   // the copy of the weights is in use, or will be, for a text
  bool stop = false;        // this rank votes for the end of the run
  bool asked_for_end = false;
  bool all_committed = false;
  bool last_pass_reached = false;  // the evaluation after the last step
  bool stopped = false;            // the run ends before the plan's last step
  bool retires = false;            // the view ends after `last`, and the run continues in another one
  bool finished = false;           // and the receivers know
};
using DeviceSelf = DeviceActor::stateful_pointer<DeviceState>;

Memory evaluation_slot(const DeviceParts& parts, std::uint64_t pass) {
  return slice(parts.evaluation_sums, pass % kEvaluationsKept * sizeof(StepSums), sizeof(StepSums));
}

/// The facts about `step` that policies need.
StepFacts facts_of(const DeviceState& s, const DeviceParts& parts, const BatchLease& batch) {
  const Step step = batch.step;
  StepFacts facts{.step = step, .samples_before = parts.schedule.samples_before(step)};
  facts.samples = parts.schedule.global_rows(step);
  facts.repeated = parts.schedule.computed_rows(step) - facts.samples;
  facts.last = s.last == step;
  facts.relieved = batch.relieved;
  facts.idle = batch.rows == 0;
  facts.consistent =
      parts.schedule.evaluates(step) || s.saves.is_due(parts, step) || s.orders.needs_equal_weights(parts, step);
  return facts;
}

/// Enqueues a step. Returns the point at which it is committed.
Point enqueue_work(DeviceState& s, const DeviceParts& parts, const BatchLease& batch) {
  const StepVotes votes{.stop = s.stop, .saving = s.saves.saving(), .rank = parts.self};
  const Memory sums = parts.exchange.begin(parts.stream, facts_of(s, parts, batch), votes);
  s.next = next(batch.step);
  const std::string reason = s.orders.reason_of_switch(batch.step);
  if (parts.switched && s.policy && *s.policy != parts.exchange.policy())
    parts.switched(batch.step, parts.exchange.policy(), reason);
  s.policy = parts.exchange.policy();
  parts.replica.announce(batch.lease.memory(), batch.lease.valid_from());
  parts.stream.wait(batch.lease.valid_from());
  parts.replica.step(parts.stream, batch.lease.memory(), batch.rows, sums, parts.exchange);
  const Point committed = parts.exchange.commit(parts.stream);
  return s.digests.enqueue(parts, batch.step) ? parts.stream.mark() : committed;
}

/// Whether requests to end, which sums of all ranks count, may be counted many steps later or never.
bool sums_are_rare(const DeviceParts& parts) {
  const PolicySettings& policy = parts.exchange.policy();
  return !parts.sums_are_common || works_locally(policy.kind) || policy.accumulate > 1;
}

/// Where this rank's vote may not be counted soon, an order is asked for: also when such a policy begins after the
/// vote.
void ask_for_end(DeviceSelf self, const DeviceParts& parts) {
  DeviceState& s = self->state;
  if (!s.stop || s.asked_for_end || !s.coordinator || !sums_are_rare(parts)) return;
  s.asked_for_end = true;
  self->send(s.coordinator, EndRequest{parts.self.value});
}

void enqueue_step(DeviceSelf self, const DeviceParts& parts, BatchLease batch) {
  const TraceSpan span(parts.trace, "enqueue step", {.step = batch.step.value});
  DeviceState& s = self->state;
  Point committed;
  enqueue_as_pieces(parts.recorded, [&] { committed = enqueue_work(s, parts, batch); });
  parts.steps.send_at(committed, DeviceActor{self}, StepReached{batch.step, {}});
  if (s.saves.follows(parts, batch.step)) s.saves.enqueue(DeviceActor{self}, parts, batch.step);
  if (parts.awaits_verdicts && parts.schedule.evaluates(batch.step) && batch.step != *s.last) {
    s.evaluated_step = batch.step;
    s.consistent_there = parts.exchange.is_consistent();
  }
  // The ranks may not have counted a request to stop the run yet; it is repeated in the next view.
  if (batch.step < *s.last && s.orders.ends_view(parts, batch.step)) {
    s.last = batch.step;
    s.retires = true;
    s.stopped = false;
  }
  s.in_flight.push_back({batch.step, std::move(batch.lease), parts.exchange.totals_are_common()});
  --s.credits;
  ask_for_end(self, parts);
}

void enqueue_evaluation(DeviceSelf self, const DeviceParts& parts, BatchLease batch) {
  const TraceSpan span(parts.trace, "enqueue evaluation", {.step = batch.step.value});
  DeviceState& s = self->state;
  const bool begins = !s.evaluating;
  if (begins) {
    s.evaluating = true;
    ++s.evaluations;
    ++s.evaluations_left;
  }
  const Memory sums = evaluation_slot(parts, s.evaluations - 1);
  if (begins) {
    *parts.space.address_of<StepSums>(sums) = {};
    parts.exchange.show_evaluated(parts.stream);
  }
  parts.stream.wait(batch.lease.valid_from());
  parts.replica.evaluate(parts.stream, batch.lease.memory(), batch.rows, sums);
  if (batch.last && parts.texts) {
    parts.stream.copy(parts.texts->copy, parts.texts->from);
    s.text_open = true;
  }
  const Point done = parts.stream.mark();
  batch.lease.free_after(done);
  if (batch.last) {
    parts.exchange.hide_evaluated(parts.stream);
    // Where the average was shown, the weights are back before anyone hears of it, who may end the run.
    parts.evaluations.send_at(parts.exchange.keeps_average() ? parts.stream.mark() : done, DeviceActor{self},
                              EvaluationReached{batch.step, {}});
    s.evaluating = false;
  }
}

/// Enqueues the batches that are ready, in the loader's order, as far as credits and the end of the view allow.
void enqueue_ready(DeviceSelf self, const DeviceParts& parts) {
  DeviceState& s = self->state;
  while (s.begun && !s.finished && !s.orders.holds() && !s.ready.empty()) {
    const BatchLease& batch = s.ready.front();
    const bool beyond = s.last && (batch.evaluation ? s.stopped && batch.step >= *s.last : batch.step > *s.last);
    if (batch.evaluation && batch.last && s.text_open) return;
    if (batch.evaluation && !s.evaluating && s.evaluations_left == kEvaluationsKept) return;  // every slot is in use
    if (beyond || (!batch.evaluation && (s.credits == 0 || s.evaluated_step))) return;
    if (!batch.evaluation && !parts.sums_are_common && s.saves.saving() && s.saves.is_wanted(parts, batch.step)) return;
    BatchLease taken = std::move(s.ready.front());
    s.ready.pop_front();
    if (taken.evaluation)
      enqueue_evaluation(self, parts, std::move(taken));
    else
      enqueue_step(self, parts, std::move(taken));
  }
}

/// Whether the evaluation after the last step is done, if there is one.
bool has_evaluated(const DeviceState& s, const DeviceParts& parts) {
  return s.stopped || !parts.schedule.evaluates(*s.last) || s.last_pass_reached;
}

/// The end of the view: every step is committed and evaluated, and no save is in progress. The next view starts from
/// the state in memory, so nothing is saved for it.
void retire_when_done(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers) {
  DeviceState& s = self->state;
  if (s.saves.saving() || s.evaluated_step || !has_evaluated(s, parts)) return;
  s.finished = true;
  if (parts.retired) parts.retired({s.policy, s.orders.switches(), s.saves.next_number()});
  for (const auto& receiver : receivers.finished) self->send(receiver, DeviceFinished{.retired = true});
}

/// The end of the run: every step is committed, its state is saved, and the evaluation after the last step is done
/// unless the job was stopped before.
void finish_when_done(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers) {
  DeviceState& s = self->state;
  if (!s.all_committed || s.finished) return;
  if (s.retires) return retire_when_done(self, parts, receivers);
  if (parts.saves && s.saves.saved() != s.last) {
    const bool shows_average = s.evaluating && parts.exchange.keeps_average();
    if (!s.saves.saving() && !shows_average) s.saves.enqueue(DeviceActor{self}, parts, *s.last);
    return;
  }
  if (s.saves.copying() || !has_evaluated(s, parts)) return;
  s.finished = true;
  for (const auto& receiver : receivers.finished) self->send(receiver, DeviceFinished{s.stopped});
}

/// All ranks reach the same verdict on the same step. Each reports its end to Membership, and the view ends only when
/// all have, so no rank sees another's end as a loss. The receivers are not told of that step, and the steps enqueued
/// after it are abandoned.
void end_by_verdict(DeviceSelf self, const DeviceReceivers& receivers, const Status& verdict) {
  DeviceState& s = self->state;
  s.stopped = s.finished = true;
  for (const auto& receiver : receivers.finished) self->send(receiver, DeviceFinished{true, verdict});
}

/// If a step's sums are common, rank 0's are those of all ranks, and the other ranks send zeros.
void send_own_sums(DeviceSelf self, const DeviceParts& parts, const RankSumsReceiver& receiver, Step step, bool common,
                   const StepSums& total) {
  RankSums own{.rank = parts.self.value, .step = step.value};
  if (!common || parts.self.value == 0) {
    own.loss = total.loss;
    own.correct = total.correct;
    own.samples = total.samples;
  }
  if (receiver) self->send(receiver, own);
}

/// A step without a round ends on the stream alone, so it may be reported before an earlier one, whose round ends on
/// other lines. Votes must be counted in the order of steps: ranks that know different votes when they enqueue a step
/// would disagree on whether it is saved.
void note_reached(DeviceState& s, Step step) {
  const auto found = std::ranges::find(s.in_flight, step, &StepInFlight::step);
  if (found != s.in_flight.end()) found->reached = true;
}

void on_committed(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers, Step step) {
  DeviceState& s = self->state;
  const Committed committed_step{parts.exchange.view(), step, parts.exchange.total(step)};
  const bool common = s.in_flight.front().common;
  s.in_flight.pop_front();
  ++s.credits;
  if (common && committed_step.total.samples != 0) s.saves.counted(step, committed_step.total.still_saving != 0);
  for (const auto& receiver : receivers.committed) self->send(receiver, committed_step);
  if (auto digest = s.digests.take(parts, step)) self->send(receivers.digests, std::move(*digest));
  if (!parts.sums_are_common) send_own_sums(self, parts, receivers.sums, step, common, committed_step.total);
  const auto end = parts.sums_are_common ? end_after(parts.schedule, step, committed_step.total) : std::nullopt;
  // Only the first total with votes counts: the ranks vote in every later step, too, and these would postpone the end.
  if (end && !s.stopped && !s.retires) {
    s.last = end;
    s.stopped = true;
  }
  if (step == *s.last) {
    s.all_committed = true;
    parts.exchange.join(parts.stream);  // for threads that read the weights after the stream has ended
  }
}

/// Whether this actor knows that `step` is committed. The stream's later messages may arrive before StepReached of that
/// step.
bool is_committed(const DeviceState& s, Step step) { return s.in_flight.empty() || s.in_flight.front().step > step; }

/// The weights are copied. The receiver gets texts only; an error comes back, and ends this actor.
void begin_text(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers, Step step) {
  const auto work = [generate = parts.texts->generate, step, to = receivers.texts,
                     back = DeviceActor{self}](Blocking&) {
    TextGenerated made{step, {}, {}};
    try {
      made.text = generate(step);
      caf::anon_send(to, made);
    } catch (const std::exception& error) {
      made.status = {Code::invalid, text("no text after step ", step.value, ": ", error.what())};
    }
    caf::anon_send(back, std::move(made));
  };
  parts.texts->work.post(work);
}

void take_evaluation(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers,
                     const EvaluationReached& reached) {
  DeviceState& s = self->state;
  const std::uint64_t pass = s.evaluations - s.evaluations_left;
  --s.evaluations_left;
  if (parts.texts) begin_text(self, parts, receivers, reached.step);
  self->send(receivers.evaluated,
             Evaluated{reached.step, *parts.space.address_of<StepSums>(evaluation_slot(parts, pass))});
  s.last_pass_reached = reached.step == *s.last;
}

/// Handles messages that arrived before their step, which is committed now.
void take_early(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers) {
  DeviceState& s = self->state;
  while (!s.evaluated_early.empty() && is_committed(s, s.evaluated_early.front().step)) {
    take_evaluation(self, parts, receivers, s.evaluated_early.front());
    s.evaluated_early.pop_front();
  }
  if (auto copied = s.saves.take_copied([&](Step step) { return is_committed(s, step); }))
    self->send(receivers.snapshots, std::move(*copied));
}

/// Why this rank stays in its view. Ranks need some steps to agree on the end of a run; if views followed each other
/// quickly, a requested end might never be agreed on.
std::string why_not_rebuilt(const DeviceState& s, const DeviceParts& parts) {
  if (s.stop) return "the run was asked to end";
  return parts.rebuild_refusal ? parts.rebuild_refusal() : "it works in one view to its end";
}

/// No step begins until the order arrives; steps that have begun are completed.
void hold(DeviceSelf self, const DeviceParts& parts, const DeviceReceivers& receivers, const HoldSteps& hold) {
  DeviceState& s = self->state;
  s.orders.hold(hold.number);
  StepsHeld held{parts.self.value, hold.number, s.next->value, s.last->value, {}};
  if (hold.about == StepOrderKind::switch_policy) held.refusal = parts.exchange.refusal(hold.policy);
  if (hold.about == StepOrderKind::rebuild) held.refusal = why_not_rebuilt(s, parts);
  self->send(receivers.coordinator, std::move(held));
  self->delayed_send(self, parts.order_within, OrderOverdue{hold.number});
}

/// All steps up to the evaluated one are committed at this rank, and no rank has begun a later one. If the ranks'
/// weights differ after it, one more step ends their block.
void take_verdict(DeviceState& s, const DeviceParts& parts, const EvaluationVerdict& verdict) {
  if (!s.evaluated_step || s.evaluated_step->value != verdict.step) return;
  const Step step = *std::exchange(s.evaluated_step, {});
  if (!verdict.end || s.stopped) return;
  s.last = s.consistent_there ? step : next(step);
  s.stopped = true;
  s.retires = false;
  s.all_committed = s.consistent_there;
  if (parts.ends_early) parts.ends_early(*s.last);
}

void follow(DeviceSelf self, const DeviceParts& parts, const StepOrder& order) {
  DeviceState& s = self->state;
  if (!s.orders.is_held_by(order.number)) return;
  s.orders.let_go();
  switch (order.kind) {
    case StepOrderKind::go_on: break;
    case StepOrderKind::switch_policy:
      parts.exchange.switch_at({order.at}, order.policy);
      s.orders.expect_switch({order.at}, order.reason);
      break;
    case StepOrderKind::end:
      s.last = Step{order.at};
      s.stopped = true;
      if (parts.ends_early) parts.ends_early(*s.last);
      break;
    case StepOrderKind::rebuild: s.orders.expect_rebuild({order.at}); break;
  }
  enqueue_ready(self, parts);
}

DeviceActor::behavior_type device_actor(DeviceSelf self, DeviceParts parts, DeviceReceivers receivers) {
  end_with_own_errors(self);
  self->state.last = Step{parts.schedule.steps - 1};
  self->state.next = Step{parts.schedule.first_step};
  self->state.policy = parts.from.policy;
  self->state.orders.begin(parts.from);
  self->state.saves.begin(parts);
  self->state.coordinator = receivers.coordinator;
  if (receivers.coordinator) self->send(receivers.coordinator, JoinSteps{parts.self.value});
  const auto ends_with = [=](const Status& status) {
    if (self->state.finished) return true;
    if (!status.ok()) self->quit(to_caf(status));  // Membership monitors this actor
    return !status.ok();
  };
  const auto verdict_on = [=](Step step) {
    return parts.verdict ? parts.verdict(step, parts.exchange.total(step)) : Status{};
  };
  return {[=](BatchLease& batch) {
            self->state.ready.push_back(std::move(batch));
            enqueue_ready(self, parts);
          },
          [=](const StepReached& reached) {
            if (ends_with(reached.status)) return;
            const auto& in_flight = self->state.in_flight;
            note_reached(self->state, reached.step);
            while (!in_flight.empty() && in_flight.front().reached) {
              const Step step = in_flight.front().step;
              if (const Status verdict = verdict_on(step); !verdict.ok()) {
                // If the sums are this rank's own, so is the verdict; Membership learns of it by this actor's end.
                if (!in_flight.front().common) return self->quit(to_caf(verdict));
                return end_by_verdict(self, receivers, verdict);
              }
              on_committed(self, parts, receivers, step);
            }
            take_early(self, parts, receivers);
            enqueue_ready(self, parts);
            finish_when_done(self, parts, receivers);
          },
          [=](const EvaluationReached& reached) {
            if (ends_with(reached.status)) return;
            self->state.evaluated_early.push_back(reached);
            take_early(self, parts, receivers);
            enqueue_ready(self, parts);
            finish_when_done(self, parts, receivers);
          },
          [=](const SnapshotReached& reached) {
            if (ends_with(reached.status)) return;
            self->state.saves.copied(reached, parts.exchange.copied_loss_scale());
            take_early(self, parts, receivers);
            finish_when_done(self, parts, receivers);
          },
          [=](SnapshotFree) {
            self->state.saves.written();
            enqueue_ready(self, parts);
            finish_when_done(self, parts, receivers);
          },
          [=](const Begin&) {
            self->state.begun = true;
            enqueue_ready(self, parts);
          },
          [=](StopRequest) {
            self->state.stop = true;
            ask_for_end(self, parts);
          },
          [=](const HoldSteps& order) { hold(self, parts, receivers, order); },
          [=](const StepOrder& order) { follow(self, parts, order); },
          [=](const EvaluationVerdict& verdict) {
            take_verdict(self->state, parts, verdict);
            enqueue_ready(self, parts);
            finish_when_done(self, parts, receivers);
          },
          [=](const OrderOverdue& overdue) {
            if (!self->state.orders.is_held_by(overdue.number)) return;
            ends_with({Code::timeout, text("rank 0 held the steps, and gave no order within ",
                                           parts.order_within.count(), " ms (faults.exchange_s)")});
          },
          [=](const TextGenerated& made) {
            if (ends_with(made.status)) return;
            self->state.text_open = false;
            enqueue_ready(self, parts);
          }};
}

}  // namespace

std::optional<Step> end_after(const Schedule& schedule, Step counted, const StepSums& total) noexcept {
  const Step end{counted.value + kStepsAhead};
  if (total.stop_requests == 0 || schedule.is_last(end)) return {};
  return end;
}

DeviceActor spawn_device(caf::actor_system& system, const DeviceParts& parts, DeviceReceivers receivers) {
  return system.spawn(device_actor, parts, std::move(receivers));
}

}  // namespace troupe
