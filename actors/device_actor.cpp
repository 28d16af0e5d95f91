#include "actors/device_actor.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

/// A policy that is to begin with step `at`, and why.
struct OrderedSwitch {
  Step at;
  std::string reason;
};

/// Whether a rank was still writing a checkpoint when `step` began.
struct SavingVote {
  Step step;
  bool saving = false;
};

struct UnderWay {
  Step step;
  Lease lease;         // kept so that its slot returns on this thread
  bool common = true;  // the step's sums are of all ranks
};

struct DeviceState {
  static constexpr const char* name = "device";
  std::deque<BatchLease> ready;                   // as many as the loader's pool has slots
  std::deque<UnderWay> in_flight;                 // steps not yet committed
  std::deque<EvaluationReached> evaluated_early;  // before it was heard that their steps are committed
  std::optional<SnapshotReached> copied_early;    // likewise
  std::optional<Step> last;                       // the job's last step, once it is known
  std::optional<Step> next;                       // the step to enqueue
  std::optional<std::uint32_t> held_by;           // the number of the order that lets steps go on
  std::deque<OrderedSwitch> switches;             // to come
  std::optional<Step> evaluated_step;             // whose evaluation's verdict decides what comes next
  bool consistent_there = false;                  // after that step
  bool digest_due = false;                        // at the next step after which all weights are alike
  std::deque<Step> digests;                       // on the stream
  std::uint64_t credits = kStepsAhead;
  std::uint64_t evaluation = 0;        // passes begun
  std::uint64_t evaluations_left = 0;  // begun and not reached
  bool begun = false;
  bool evaluating = false;  // inside a pass
  bool stop = false;        // this rank votes to end
  bool all_committed = false;
  bool last_pass_reached = false;  // the evaluation after the last step
  bool stopped = false;            // the end came before the plan's
  bool finished = false;           // and everyone was told
  // Checkpoints.
  std::uint32_t next_number = 1;
  std::optional<Step> saved;             // the last step that was, or is being, saved
  bool copying = false;                  // on the stream
  bool saving = false;                   // the copy is not made, or not written yet
  bool save_due = false;                 // at the next step after which the state is consistent
  std::optional<Step> evaluated;         // since the state was consistent, the last one
  std::optional<PolicySettings> policy;  // of the last step
  std::deque<SavingVote> votes;          // that were counted, oldest first
};
using Self = DeviceActor::stateful_pointer<DeviceState>;

Memory evaluation_slot(const DeviceParts& parts, std::uint64_t pass) {
  return slice(parts.evaluation_sums, pass % kEvaluationsKept * sizeof(StepSums), sizeof(StepSums));
}

/// Copies this rank's part of the state after `step` on the stream, so that the copy is of one moment.
void enqueue_snapshot(Self self, const DeviceParts& parts, Step step) {
  DeviceState& s = self->state;
  parts.exchange.join(parts.stream);
  for (const SnapshotPart& part : parts.saves->parts) parts.stream.copy(part.to, part.from);
  parts.snapshots.tell_at(parts.stream.mark(), DeviceActor{self},
                          SnapshotReached{step,
                                          s.next_number++,
                                          parts.exchange.updates(),
                                          {},
                                          std::exchange(s.evaluated, {}),
                                          parts.exchange.policies()});
  s.saved = step;
  s.copying = s.saving = true;
}

bool is_due(const SavePlan& plan, Step step) {
  return plan.every_steps != 0 && (step.value + 1) % plan.every_steps == 0;
}

/// Whether a save is wanted after `step`. Where ranks do not know each other's votes it is made, and `step` waits until
/// the copy before it is written.
bool is_wanted(const DeviceParts& parts, Step step) {
  if (!parts.saves || parts.schedule.is_last(step)) return false;
  return is_due(*parts.saves, step) || (parts.saves->evaluated && parts.schedule.evaluates(step));
}

/// Whether all ranks have memory for a copy after `step`. Of the ranks' votes, that of kStepsAhead steps ago is the
/// newest that each of them has counted for sure; a save that was begun since it was cast is known without.
bool may_save(DeviceState& s, Step step) {
  std::optional<SavingVote> counted;
  while (!s.votes.empty() && s.votes.front().step.value + kStepsAhead <= step.value) {
    counted = s.votes.front();
    s.votes.pop_front();
  }
  if (counted) s.votes.push_front(*counted);  // until a newer one takes its place
  if (s.saved && (!counted || counted->step <= *s.saved)) return false;
  return !counted || !counted->saving;
}

/// Saves wait for the end of a block: what goes on from there goes on as if nothing had been.
bool saves_after(DeviceState& s, const DeviceParts& parts, Step step) {
  if (!parts.saves) return false;
  if (parts.schedule.evaluates(step)) s.evaluated = step;
  if (parts.schedule.is_last(step)) return false;
  bool saves = is_wanted(parts, step);
  if (parts.exchange.totals_are_common()) {
    s.save_due = s.save_due || saves;
    if (!parts.exchange.is_consistent()) return false;
    saves = std::exchange(s.save_due, false) && may_save(s, step);  // one left out is not made up for
  }
  if (!saves) s.evaluated.reset();
  return saves;
}

/// What the policies are told of `step`.
StepFacts facts_of(const DeviceState& s, const DeviceParts& parts, const BatchLease& batch) {
  const Step step = batch.step;
  StepFacts facts{.step = step, .samples_before = parts.schedule.samples_before(step)};
  facts.samples = parts.schedule.global_rows(step);
  facts.last = s.last == step;
  facts.relieved = batch.relieved;
  facts.consistent = parts.schedule.evaluates(step) || (parts.saves && is_due(*parts.saves, step));
  return facts;
}

/// Why `step` has another policy than the one before it; empty: the policy's turn has come.
std::string reason_of_switch(DeviceState& s, Step step) {
  std::string reason;
  for (; !s.switches.empty() && s.switches.front().at <= step; s.switches.pop_front())
    reason = std::move(s.switches.front().reason);
  return reason;
}

Memory digest_slot(const DigestPlan& plan, Step step, std::size_t tensor) {
  const std::uint64_t place = step.value % StepExchange::kStepsKept * plan.tensors.size() + tensor;
  return slice(plan.results, place * sizeof(std::uint64_t), sizeof(std::uint64_t));
}

/// Behind the step, so that it is done when the step is told to be.
void enqueue_digest(DeviceState& s, const DeviceParts& parts, Step step) {
  const DigestPlan& plan = *parts.digests;
  s.digest_due = s.digest_due || (step.value + 1) % plan.every_steps == 0;
  if (!s.digest_due || !parts.exchange.is_consistent()) return;
  parts.exchange.show_common(parts.stream);
  for (std::size_t t = 0; t < plan.tensors.size(); ++t)
    parts.stream.digest(digest_slot(plan, step, t), plan.tensors[t]);
  parts.exchange.show_own(parts.stream);
  s.digests.push_back(step);
  s.digest_due = false;
}

void tell_digest(Self self, const DeviceParts& parts, const RankDigestReceiver& receiver, Step step) {
  DeviceState& s = self->state;
  if (s.digests.empty() || s.digests.front() != step) return;
  s.digests.pop_front();
  RankDigest digest{.rank = parts.self.value, .step = step.value, .tensors = {}};
  for (std::size_t t = 0; t < parts.digests->tensors.size(); ++t)
    digest.tensors.push_back(*parts.space.address_of<std::uint64_t>(digest_slot(*parts.digests, step, t)));
  self->send(receiver, std::move(digest));
}

/// Of a step, from its beginning until it is committed: that point.
Point enqueue_work(DeviceState& s, const DeviceParts& parts, const BatchLease& batch) {
  const StepVotes votes{.stop = s.stop, .saving = s.saving, .rank = parts.self};
  const Memory sums = parts.exchange.begin(parts.stream, facts_of(s, parts, batch), votes);
  s.next = next(batch.step);
  const std::string reason = reason_of_switch(s, batch.step);
  if (parts.switched && s.policy && *s.policy != parts.exchange.policy())
    parts.switched(batch.step, parts.exchange.policy(), reason);
  s.policy = parts.exchange.policy();
  parts.stream.wait(batch.lease.valid_from());
  parts.replica.step(parts.stream, batch.lease.memory(), batch.rows, sums, parts.exchange);
  Point committed = parts.exchange.commit(parts.stream);
  if (parts.digests) {
    enqueue_digest(s, parts, batch.step);
    if (!s.digests.empty() && s.digests.back() == batch.step) committed = parts.stream.mark();
  }
  return committed;
}

void enqueue_step(Self self, const DeviceParts& parts, BatchLease batch) {
  const TraceSpan span(parts.trace, "enqueue step", {.step = batch.step.value});
  DeviceState& s = self->state;
  Point committed;
  const auto work = [&] { committed = enqueue_work(s, parts, batch); };
  if (parts.programs != nullptr)
    parts.stream.enqueue(*parts.programs, std::ref(work));
  else
    work();
  parts.steps.tell_at(committed, DeviceActor{self}, StepReached{batch.step, {}});
  if (saves_after(s, parts, batch.step)) enqueue_snapshot(self, parts, batch.step);
  if (parts.awaits_verdicts && parts.schedule.evaluates(batch.step) && batch.step != *s.last) {
    s.evaluated_step = batch.step;
    s.consistent_there = parts.exchange.is_consistent();
  }
  s.in_flight.push_back({batch.step, std::move(batch.lease), parts.exchange.totals_are_common()});
  --s.credits;
}

void enqueue_evaluation(Self self, const DeviceParts& parts, BatchLease batch) {
  const TraceSpan span(parts.trace, "enqueue evaluation", {.step = batch.step.value});
  DeviceState& s = self->state;
  const Memory sums = evaluation_slot(parts, s.evaluation);
  if (!s.evaluating) {
    *parts.space.address_of<StepSums>(sums) = {};
    s.evaluating = true;
    ++s.evaluations_left;
    parts.exchange.show_common(parts.stream);
  }
  parts.stream.wait(batch.lease.valid_from());
  parts.replica.evaluate(parts.stream, batch.lease.memory(), batch.rows, sums);
  const Point done = parts.stream.mark();
  batch.lease.free_after(done);
  if (batch.last) {
    parts.exchange.show_own(parts.stream);
    parts.evaluations.tell_at(done, DeviceActor{self}, EvaluationReached{batch.step, {}});
    s.evaluating = false;
    ++s.evaluation;
  }
}

/// Enqueues what is ready, in the loader's order, as far as credits and the job's end allow.
void enqueue_ready(Self self, const DeviceParts& parts) {
  DeviceState& s = self->state;
  while (s.begun && !s.finished && !s.held_by && !s.ready.empty()) {
    const BatchLease& batch = s.ready.front();
    const bool beyond = s.last && (batch.evaluation ? s.stopped && batch.step >= *s.last : batch.step > *s.last);
    if (beyond || (!batch.evaluation && (s.credits == 0 || s.evaluated_step))) return;
    if (!batch.evaluation && !parts.sums_are_common && s.saving && is_wanted(parts, batch.step)) return;
    BatchLease taken = std::move(s.ready.front());
    s.ready.pop_front();
    if (taken.evaluation)
      enqueue_evaluation(self, parts, std::move(taken));
    else
      enqueue_step(self, parts, std::move(taken));
  }
}

/// The end: every step is committed, what they led to is saved, and the last one's evaluation done unless the job was
/// stopped before it.
void finish_when_done(Self self, const DeviceParts& parts, const DeviceAudience& audience) {
  DeviceState& s = self->state;
  if (!s.all_committed || s.finished) return;
  if (parts.saves && s.saved != s.last) {
    if (!s.saving) enqueue_snapshot(self, parts, *s.last);
    return;
  }
  if (s.copying) return;
  if (!s.stopped && parts.schedule.evaluates(*s.last) && !s.last_pass_reached) return;
  s.finished = true;
  for (const auto& receiver : audience.finished) self->send(receiver, DeviceFinished{s.stopped});
}

/// All ranks come to the same verdict on the same step: each waits for the others to have it before the view ends, so
/// that none hears of another's end first. Nobody is told of that step, and what was enqueued behind it is given up.
void end_by_verdict(Self self, const DeviceAudience& audience, const Status& verdict) {
  DeviceState& s = self->state;
  s.stopped = s.finished = true;
  for (const auto& receiver : audience.finished) self->send(receiver, DeviceFinished{true, verdict});
}

/// Of a step whose sums are common rank 0's are those of all, and the others have nothing to add.
void tell_own_sums(Self self, const DeviceParts& parts, const RankSumsReceiver& receiver, Step step, bool common,
                   const StepSums& total) {
  RankSums own{.rank = parts.self.value, .step = step.value};
  if (!common || parts.self.value == 0) {
    own.loss = total.loss;
    own.correct = total.correct;
    own.samples = total.samples;
  }
  if (receiver) self->send(receiver, own);
}

void on_committed(Self self, const DeviceParts& parts, const DeviceAudience& audience, Step step) {
  DeviceState& s = self->state;
  const Committed news{parts.exchange.view(), step, parts.exchange.total(step)};
  const bool common = s.in_flight.front().common;
  s.in_flight.pop_front();
  ++s.credits;
  if (common && news.total.samples != 0) s.votes.push_back({step, news.total.still_saving != 0});
  for (const auto& receiver : audience.committed) self->send(receiver, news);
  tell_digest(self, parts, audience.digests, step);
  if (!parts.sums_are_common) tell_own_sums(self, parts, audience.sums, step, common, news.total);
  const auto end = parts.sums_are_common ? end_after(parts.schedule, step, news.total) : std::nullopt;
  if (end && !s.stopped) {
    s.last = end;
    s.stopped = true;
  }
  if (step == *s.last) {
    s.all_committed = true;
    parts.exchange.join(parts.stream);  // whoever reads the weights when the stream is over
  }
}

/// Whether it was heard that `step` is committed. The stream may have gone on before whoever tells of that has run.
bool is_committed(const DeviceState& s, Step step) { return s.in_flight.empty() || s.in_flight.front().step > step; }

void take_evaluation(Self self, const DeviceParts& parts, const DeviceAudience& audience,
                     const EvaluationReached& reached) {
  DeviceState& s = self->state;
  const std::uint64_t pass = s.evaluation - s.evaluations_left;
  --s.evaluations_left;
  self->send(audience.evaluated,
             Evaluated{reached.step, *parts.space.address_of<StepSums>(evaluation_slot(parts, pass))});
  s.last_pass_reached = reached.step == *s.last;
}

void take_snapshot(Self self, const DeviceAudience& audience, const SnapshotReached& reached) {
  self->state.copying = false;
  self->send(audience.snapshots,
             SnapshotTaken{reached.step, reached.number, reached.updates, reached.evaluated, reached.policies});
}

/// What waited for the step that was committed last.
void take_early(Self self, const DeviceParts& parts, const DeviceAudience& audience) {
  DeviceState& s = self->state;
  while (!s.evaluated_early.empty() && is_committed(s, s.evaluated_early.front().step)) {
    take_evaluation(self, parts, audience, s.evaluated_early.front());
    s.evaluated_early.pop_front();
  }
  if (s.copied_early && is_committed(s, s.copied_early->step))
    take_snapshot(self, audience, *std::exchange(s.copied_early, {}));
}

/// No step begins until the order comes; those under way go on.
void hold(Self self, const DeviceParts& parts, const DeviceAudience& audience, const HoldSteps& hold) {
  DeviceState& s = self->state;
  s.held_by = hold.number;
  StepsHeld held{parts.self.value, hold.number, s.next->value, s.last->value, {}};
  if (hold.about == StepOrderKind::switch_policy) held.refusal = parts.exchange.refusal(hold.policy);
  self->send(audience.coordinator, std::move(held));
  self->delayed_send(self, parts.order_within, OrderOverdue{hold.number});
}

/// All steps up to the evaluated one are committed at this rank, and no further one has begun at any. Where the ranks'
/// weights are still different, one more step ends their block.
void take_verdict(DeviceState& s, const EvaluationVerdict& verdict) {
  if (!s.evaluated_step || s.evaluated_step->value != verdict.step) return;
  const Step step = *std::exchange(s.evaluated_step, {});
  if (!verdict.end || s.stopped) return;
  s.last = s.consistent_there ? step : next(step);
  s.stopped = true;
  s.all_committed = s.consistent_there;
}

void follow(Self self, const DeviceParts& parts, const StepOrder& order) {
  DeviceState& s = self->state;
  if (s.held_by != order.number) return;
  s.held_by.reset();
  if (order.kind == StepOrderKind::switch_policy) {
    parts.exchange.switch_at({order.at}, order.policy);
    s.switches.push_back({{order.at}, order.reason});
  } else if (order.kind == StepOrderKind::end) {
    s.last = Step{order.at};
    s.stopped = true;
  }
  enqueue_ready(self, parts);
}

DeviceActor::behavior_type device_actor(Self self, DeviceParts parts, DeviceAudience audience) {
  end_with_own_errors(self);
  self->state.last = Step{parts.schedule.steps - 1};
  self->state.next = Step{parts.schedule.first_step};
  if (parts.saves) self->state.next_number = parts.saves->first_number;
  if (audience.coordinator) self->send(audience.coordinator, JoinSteps{parts.self.value});
  const auto ends_with = [=](const Status& status) {
    if (self->state.finished) return true;
    if (!status.ok()) self->quit(to_caf(status));  // Membership hears of it
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
            if (const Status verdict = verdict_on(reached.step); !verdict.ok()) {
              // Where sums are this rank's own, the verdict is too, and Membership hears of it.
              if (!self->state.in_flight.front().common) return self->quit(to_caf(verdict));
              return end_by_verdict(self, audience, verdict);
            }
            on_committed(self, parts, audience, reached.step);
            take_early(self, parts, audience);
            enqueue_ready(self, parts);
            finish_when_done(self, parts, audience);
          },
          [=](const EvaluationReached& reached) {
            if (ends_with(reached.status)) return;
            self->state.evaluated_early.push_back(reached);
            take_early(self, parts, audience);
            finish_when_done(self, parts, audience);
          },
          [=](const SnapshotReached& reached) {
            if (ends_with(reached.status)) return;
            self->state.copied_early = reached;
            take_early(self, parts, audience);
            finish_when_done(self, parts, audience);
          },
          [=](SnapshotFree) {
            self->state.saving = false;
            enqueue_ready(self, parts);
            finish_when_done(self, parts, audience);
          },
          [=](const Begin&) {
            self->state.begun = true;
            enqueue_ready(self, parts);
          },
          [=](StopRequest) {
            self->state.stop = true;
            if (!parts.sums_are_common && audience.coordinator)
              self->send(audience.coordinator, EndWish{parts.self.value});
          },
          [=](const HoldSteps& order) { hold(self, parts, audience, order); },
          [=](const StepOrder& order) { follow(self, parts, order); },
          [=](const EvaluationVerdict& verdict) {
            take_verdict(self->state, verdict);
            enqueue_ready(self, parts);
            finish_when_done(self, parts, audience);
          },
          [=](const OrderOverdue& overdue) {
            if (self->state.held_by != overdue.number) return;
            ends_with({Code::timeout, text("rank 0 held the steps, and gave no order within ",
                                           parts.order_within.count(), " ms (faults.exchange_s)")});
          }};
}

}  // namespace

std::optional<Step> end_after(const Schedule& schedule, Step counted, const StepSums& total) noexcept {
  const Step end{counted.value + kStepsAhead};
  if (total.stop_requests == 0 || schedule.is_last(end)) return {};
  return end;
}

DeviceActor spawn_device(caf::actor_system& system, const DeviceParts& parts, DeviceAudience audience) {
  return system.spawn(device_actor, parts, std::move(audience));
}

}  // namespace troupe
