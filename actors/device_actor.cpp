#include "actors/device_actor.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {
namespace {

/// Whether a rank was still writing a checkpoint when `step` began.
struct SavingVote {
  Step step;
  bool saving = false;
};

struct DeviceState {
  static constexpr const char* name = "device";
  std::deque<BatchLease> ready;  // as many as the loader's pool has slots
  std::deque<Lease> in_flight;   // of steps not yet committed, kept so that their slots return on this thread
  std::optional<Step> last;      // the job's last step, once it is known
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
  for (const SnapshotPart& part : parts.saves->parts) parts.stream.copy(part.to, part.from);
  parts.snapshots.tell_at(parts.stream.mark(), DeviceActor{self},
                          SnapshotReached{step,
                                          s.next_number++,
                                          parts.exchange.updates(),
                                          {},
                                          std::exchange(s.evaluated, {}),
                                          parts.exchange.policy().kind});
  s.saved = step;
  s.copying = s.saving = true;
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

bool is_due(const SavePlan& plan, Step step) {
  return plan.every_steps != 0 && (step.value + 1) % plan.every_steps == 0;
}

/// Saves wait for the end of a block: what goes on from there goes on as if nothing had been.
bool saves_after(DeviceState& s, const DeviceParts& parts, Step step) {
  if (!parts.saves) return false;
  const bool evaluates = parts.schedule.evaluates(step);
  if (evaluates) s.evaluated = step;
  s.save_due = s.save_due || is_due(*parts.saves, step) || (evaluates && parts.saves->evaluated);
  if (parts.schedule.is_last(step) || !parts.exchange.is_consistent()) return false;
  const bool saves = std::exchange(s.save_due, false) && may_save(s, step);  // one left out is not made up for
  if (!saves) s.evaluated.reset();
  return saves;
}

/// What the policies are told of `step`.
StepFacts facts_of(const DeviceState& s, const DeviceParts& parts, Step step) {
  StepFacts facts{.step = step, .samples_before = parts.schedule.samples_before(step)};
  facts.samples = parts.schedule.global_rows(step);
  facts.last = s.last == step;
  facts.consistent = parts.schedule.evaluates(step) || (parts.saves && is_due(*parts.saves, step));
  return facts;
}

void enqueue_step(Self self, const DeviceParts& parts, BatchLease batch) {
  DeviceState& s = self->state;
  const StepVotes votes{.stop = s.stop, .saving = s.saving, .rank = parts.self};
  const Memory sums = parts.exchange.begin(parts.stream, facts_of(s, parts, batch.step), votes);
  if (parts.switched && s.policy && *s.policy != parts.exchange.policy())
    parts.switched(batch.step, parts.exchange.policy());
  s.policy = parts.exchange.policy();
  parts.stream.wait(batch.lease.valid_from());
  parts.replica.step(parts.stream, batch.lease.memory(), batch.rows, sums, parts.exchange);
  const Point committed = parts.exchange.commit(parts.stream);
  parts.steps.tell_at(committed, DeviceActor{self}, StepReached{batch.step, {}});
  if (saves_after(s, parts, batch.step)) enqueue_snapshot(self, parts, batch.step);
  s.in_flight.push_back(std::move(batch.lease));
  --s.credits;
}

void enqueue_evaluation(Self self, const DeviceParts& parts, BatchLease batch) {
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
  while (s.begun && !s.finished && !s.ready.empty()) {
    const BatchLease& batch = s.ready.front();
    const bool beyond = s.last && (batch.evaluation ? s.stopped && batch.step >= *s.last : batch.step > *s.last);
    if (beyond || (!batch.evaluation && s.credits == 0)) return;
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

void on_committed(Self self, const DeviceParts& parts, const DeviceAudience& audience, Step step) {
  DeviceState& s = self->state;
  const Committed news{parts.exchange.view(), step, parts.exchange.total(step)};
  s.in_flight.pop_front();
  ++s.credits;
  if (news.total.samples != 0) s.votes.push_back({step, news.total.saving != 0});
  for (const auto& receiver : audience.committed) self->send(receiver, news);
  if (const auto end = end_after(parts.schedule, step, news.total); end && !s.stopped) {
    s.last = end;
    s.stopped = true;
  }
  if (step == *s.last) s.all_committed = true;
}

DeviceActor::behavior_type device_actor(Self self, DeviceParts parts, DeviceAudience audience) {
  end_with_own_errors(self);
  self->state.last = Step{parts.schedule.steps - 1};
  if (parts.saves) self->state.next_number = parts.saves->first_number;
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
            if (const Status verdict = verdict_on(reached.step); !verdict.ok())
              return end_by_verdict(self, audience, verdict);
            on_committed(self, parts, audience, reached.step);
            enqueue_ready(self, parts);
            finish_when_done(self, parts, audience);
          },
          [=](const EvaluationReached& reached) {
            if (ends_with(reached.status)) return;
            DeviceState& s = self->state;
            const std::uint64_t pass = s.evaluation - s.evaluations_left;
            --s.evaluations_left;
            self->send(audience.evaluated,
                       Evaluated{reached.step, *parts.space.address_of<StepSums>(evaluation_slot(parts, pass))});
            s.last_pass_reached = reached.step == *s.last;
            finish_when_done(self, parts, audience);
          },
          [=](const SnapshotReached& reached) {
            if (ends_with(reached.status)) return;
            self->state.copying = false;
            self->send(audience.snapshots,
                       SnapshotTaken{reached.step, reached.number, reached.updates, reached.evaluated, reached.policy});
            finish_when_done(self, parts, audience);
          },
          [=](SnapshotFree) {
            self->state.saving = false;
            finish_when_done(self, parts, audience);
          },
          [=](const Begin&) {
            self->state.begun = true;
            enqueue_ready(self, parts);
          },
          [=](StopRequest) { self->state.stop = true; }};
}

}  // namespace

std::optional<Step> end_after(const Schedule& schedule, Step counted, const StepSums& total) noexcept {
  const Step end{counted.value + kStepsAhead - 1};
  if (total.stop == 0 || schedule.is_last(end)) return {};
  return end;
}

DeviceActor spawn_device(caf::actor_system& system, const DeviceParts& parts, DeviceAudience audience) {
  return system.spawn(device_actor, parts, std::move(audience));
}

}  // namespace troupe
