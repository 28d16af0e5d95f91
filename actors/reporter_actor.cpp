#include "actors/reporter_actor.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/report/line_values.hpp"

namespace troupe {
namespace {

constexpr auto kProgressEvery = std::chrono::milliseconds(200);

double seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

/// A line that waits for its test result, for the apps' values, or for an earlier line.
struct OpenLine {
  Step step;
  EpochReport line;
  Clock::time_point trained;
  bool wants_test = false;
  bool wants_text = false;
};

struct ReporterState : ReportSoFar {
  static constexpr const char* name = "reporter";
  std::deque<OpenLine> open;
  std::optional<TextGenerated> early_text;  // that was generated before its line was open
  LineValues values;
  bool values_overdue = false;
  StreamTimes times_begun;
  Clock::time_point progress_reported{};
  Clock::time_point rate_since{};  // for the rate in progress: the last report, or the end of the last evaluation
  std::uint64_t rate_samples = 0;  // trained until then
  bool finished = false;
  bool retired = false;  // the run continues in the next view
  bool reported_end = false;
};
using ReporterSelf = ReporterActor::stateful_pointer<ReporterState>;

/// How the stream has spent its time since the run began.
StreamTimes times_so_far(const ReporterState& s, const ReportTargets& targets) {
  return targets.times ? targets.times() - s.times_begun : StreamTimes{};
}

void report_progress(ReporterState& s, const Schedule& schedule, const ReportTargets& targets, const Committed& c) {
  const auto now = Clock::now();
  if (!targets.progress || now - s.progress_reported < kProgressEvery || now == s.rate_since) return;
  if (s.total.samples == s.rate_samples) return;  // they become known only at rounds
  RunProgress progress{.step = c.step.value + 1, .steps = schedule.steps, .samples = s.total.samples};
  progress.samples_per_s = static_cast<double>(s.total.samples - s.rate_samples) / seconds(now - s.rate_since);
  if (c.total.samples != 0) progress.loss = c.total.loss / static_cast<double>(c.total.samples);
  progress.elapsed_s = s.total.elapsed_s;
  progress.train_s = s.total.train_s;
  progress.times = times_so_far(s, targets);
  targets.progress(progress);
  s.progress_reported = s.rate_since = now;
  s.rate_samples = s.total.samples;
}

/// Whether all apps have reported their values for the line's steps. After the run's last step an app may report values
/// until it ends its loop.
bool has_values(const ReporterState& s, const Schedule& schedule, const OpenLine& open) {
  if (s.values_overdue) return true;
  const bool last = schedule.is_last(open.step) || (s.finished && open.step.value + 1 == s.total.steps);
  return last ? s.values.has_all() : s.values.has_all_until(open.step);
}

/// Passes on the lines that wait for nothing any more, in order, and after the last one the end.
void report_lines(ReporterSelf self, const Schedule& schedule, const ReportTargets& targets,
                  const ReportedReceiver& receiver) {
  ReporterState& s = self->state;
  const auto is_complete = [&](const OpenLine& open) {
    return !open.wants_test && !open.wants_text && has_values(s, schedule, open);
  };
  for (; !s.open.empty() && is_complete(s.open.front()); s.open.pop_front()) {
    EpochReport& line = s.open.front().line;
    line.values = s.values.take(s.open.front().step);
    if (targets.line) targets.line(line);
  }
  if (!s.finished || !s.open.empty() || s.reported_end) return;
  s.reported_end = true;
  s.total.times = times_so_far(s, targets);
  if (targets.total) targets.total(s.total);
  if (s.retired && targets.retired) targets.retired(s);
  self->send(receiver, Reported{});
}

/// Reports the last `steps_every` steps of the line when there are as many again. Steps that changed nothing are not
/// counted, as in the line.
void report_steps(ReporterState& s, const Schedule& schedule, const ReportTargets& targets, Step step) {
  if (!targets.steps || targets.steps_every == 0 || s.line_steps % targets.steps_every != 0) return;
  StepsReport part{.epoch = schedule.epoch_number(step), .first = s.line_steps - targets.steps_every + 1};
  part.last = s.line_steps;
  part.samples = s.part_sums.samples;
  const auto samples = static_cast<double>(part.samples);
  part.loss = s.part_sums.loss / samples;
  part.accuracy = static_cast<double>(s.part_sums.correct) / samples;
  const double spent_s = s.total.train_s - std::exchange(s.part_train_s, s.total.train_s);
  if (spent_s > 0) part.samples_per_s = samples / spent_s;
  s.part_sums = {};
  targets.steps(part);
}

void take_text(ReporterState& s, const TextGenerated& made) {
  const auto found = std::ranges::find(s.open, made.step, &OpenLine::step);
  if (found == s.open.end()) {
    s.early_text = made;
    return;
  }
  found->line.generated_text = made.text;
  found->wants_text = false;
}

void end_line(ReporterState& s, const Schedule& schedule, const ReportTargets& targets, Step step) {
  const auto now = Clock::now();
  EpochReport line{.epoch = schedule.epoch_number(step), .steps = s.total.steps, .elapsed_s = seconds(now - s.begun)};
  line.part = schedule.epoch_part(step);
  const double samples = static_cast<double>(s.line_sums.samples);
  line.counted = s.line_sums.samples != 0 || s.line_skipped != 0;
  line.loss = s.line_sums.loss / samples;
  line.accuracy = static_cast<double>(s.line_sums.correct) / samples;
  line.samples = s.total.samples;
  line.train_s = s.total.train_s;
  const double spent_s = line.train_s - std::exchange(s.line_train_s, line.train_s);
  const auto steps = static_cast<double>(std::exchange(s.line_steps, 0));
  if (spent_s > 0) line.steps_per_s = steps / spent_s;
  line.times = times_so_far(s, targets);
  line.skipped = std::exchange(s.line_skipped, 0);
  if (targets.rate) line.rate = targets.rate(step);
  s.line_sums = s.part_sums = {};
  s.part_train_s = s.total.train_s;
  s.open.push_back({step, line, now, schedule.evaluates(step), targets.texts && schedule.evaluates(step)});
  if (s.early_text) take_text(s, *std::exchange(s.early_text, {}));
}

void take_test(ReporterState& s, const ReportTargets& targets, const TestResult& result) {
  const auto found = std::ranges::find(s.open, result.step, &OpenLine::step);
  if (found == s.open.end() || !std::exchange(found->wants_test, false)) return;
  EpochReport& line = found->line;
  s.evaluating += Clock::now() - found->trained;
  s.total.elapsed_s = line.elapsed_s = seconds(Clock::now() - s.begun);
  line.times = times_so_far(s, targets);
  if (result.sums.samples != 0) {
    line.test_loss = result.sums.loss / static_cast<double>(result.sums.samples);
    line.test_accuracy = static_cast<double>(result.sums.correct) / static_cast<double>(result.sums.samples);
  }
  s.rate_since = Clock::now();
  s.rate_samples = s.total.samples;
  if (targets.tested) targets.tested(result.step, line);
}

/// After a stop, the test set is not evaluated after the last step, and a part of an epoch has a line. Steps that end
/// with a verdict have no line.
void take_end(ReporterState& s, const Schedule& schedule, const ReportTargets& targets, const DeviceFinished& end) {
  s.finished = true;
  s.retired = end.retired;
  if (end.stopped && s.line_steps != 0 && end.verdict.ok()) end_line(s, schedule, targets, {s.total.steps - 1});
  if (end.stopped && !s.open.empty() && s.open.back().step.value + 1 == s.total.steps && s.open.back().wants_test)
    s.open.back().wants_test = s.open.back().wants_text = false;
  if (end.verdict.ok()) return;
  std::erase_if(s.open, [](const OpenLine& open) { return open.wants_test || open.wants_text; });
  s.values_overdue = true;
}

ReporterActor::behavior_type reporter(ReporterSelf self, Schedule schedule, ReportTargets targets,
                                      ReportedReceiver receiver, ReportSoFar so_far) {
  end_with_own_errors(self);
  static_cast<ReportSoFar&>(self->state) = so_far;
  self->state.values = LineValues{targets.value_ranks};
  return {[=](const Begin&) {
            ReporterState& s = self->state;
            s.progress_reported = s.rate_since = Clock::now();
            s.rate_samples = s.total.samples;
            if (s.begun == Clock::time_point{}) s.begun = s.rate_since;
            if (targets.times) s.times_begun = targets.times() - s.total.times;
          },
          [=](const Committed& c) {
            const TraceSpan span(targets.trace, "report step", {.step = c.step.value});
            ReporterState& s = self->state;
            if (targets.skipped && targets.skipped(c.total)) {
              ++s.line_skipped;
            } else {
              s.line_sums.add(c.total);
              s.part_sums.add(c.total);
            }
            s.total.steps = c.step.value + 1;
            s.total.samples += c.total.samples;
            s.total.elapsed_s = seconds(Clock::now() - s.begun);
            s.total.train_s = s.total.elapsed_s - seconds(s.evaluating);
            if (targets.step) targets.step(c.step, c.total);
            report_progress(s, schedule, targets, c);
            ++s.line_steps;
            report_steps(s, schedule, targets, c.step);
            if (schedule.reports(c.step)) end_line(s, schedule, targets, c.step);
            report_lines(self, schedule, targets, receiver);
          },
          [=](const TestResult& result) {
            const TraceSpan span(targets.trace, "report test", {.step = result.step.value});
            take_test(self->state, targets, result);
            report_lines(self, schedule, targets, receiver);
          },
          [=](RankValues& reported) {
            self->state.values.add({reported.rank}, {reported.step}, reported.last, std::move(reported.values));
            report_lines(self, schedule, targets, receiver);
          },
          [=](const TextGenerated& made) {
            take_text(self->state, made);
            report_lines(self, schedule, targets, receiver);
          },
          [=](const DeviceFinished& end) {
            take_end(self->state, schedule, targets, end);
            report_lines(self, schedule, targets, receiver);
            if (!self->state.reported_end) self->delayed_send(self, targets.values_within, ValuesOverdue{});
          },
          [=](ValuesOverdue) {
            self->state.values_overdue = true;
            report_lines(self, schedule, targets, receiver);
          }};
}

}  // namespace

ReporterActor spawn_reporter(caf::actor_system& system, const Schedule& schedule, ReportTargets targets,
                             ReportedReceiver receiver, const ReportSoFar& so_far) {
  return system.spawn(reporter, schedule, std::move(targets), std::move(receiver), so_far);
}

}  // namespace troupe
