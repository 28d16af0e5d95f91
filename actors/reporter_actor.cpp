#include "actors/reporter_actor.hpp"

#include <chrono>
#include <deque>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "runtime/clock.hpp"

namespace troupe {
namespace {

constexpr auto kProgressEvery = std::chrono::milliseconds(200);

double seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

/// A line whose test result is still to come.
struct OpenLine {
  Step step;
  EpochReport line;
  Clock::time_point trained;
};

struct ReporterState {
  static constexpr const char* name = "reporter";
  Clock::time_point begun{};
  StepSums line_sums;  // of the line under way
  std::uint64_t line_skipped = 0;
  RunTotal total;
  std::deque<OpenLine> open;
  Clock::duration evaluating{};  // time that went to evaluation
  StreamTimes times_begun;
  Clock::time_point progress_told{};
  Clock::time_point rate_since{};  // of progress: since it was told, or the last evaluation ended
  std::uint64_t rate_samples = 0;  // trained until then
  bool finished = false;
  bool told = false;
};
using Self = ReporterActor::stateful_pointer<ReporterState>;

/// What the stream has spent since the run began.
StreamTimes times_so_far(const ReporterState& s, const ReportTargets& targets) {
  return targets.times ? targets.times() - s.times_begun : StreamTimes{};
}

void tell_progress(ReporterState& s, const Schedule& schedule, const ReportTargets& targets, const Committed& c) {
  const auto now = Clock::now();
  if (!targets.progress || now - s.progress_told < kProgressEvery || now == s.rate_since) return;
  if (s.total.samples == s.rate_samples) return;  // they become known in the rounds
  RunProgress progress{.step = c.step.value + 1, .steps = schedule.steps, .samples = s.total.samples};
  progress.samples_per_s = static_cast<double>(s.total.samples - s.rate_samples) / seconds(now - s.rate_since);
  if (c.total.samples != 0) progress.loss = c.total.loss / static_cast<double>(c.total.samples);
  progress.elapsed_s = s.total.elapsed_s;
  progress.train_s = s.total.train_s;
  progress.times = times_so_far(s, targets);
  targets.progress(progress);
  s.progress_told = s.rate_since = now;
  s.rate_samples = s.total.samples;
}

void end_line(Self self, const Schedule& schedule, const ReportTargets& targets, Step step) {
  ReporterState& s = self->state;
  const auto now = Clock::now();
  EpochReport line{.epoch = schedule.epoch_number(step), .steps = s.total.steps, .elapsed_s = seconds(now - s.begun)};
  line.part = schedule.epoch_part(step);
  const double samples = static_cast<double>(s.line_sums.samples);
  line.loss = s.line_sums.loss / samples;
  line.accuracy = static_cast<double>(s.line_sums.correct) / samples;
  line.samples = s.total.samples;
  line.train_s = s.total.train_s;
  line.times = times_so_far(s, targets);
  line.skipped = std::exchange(s.line_skipped, 0);
  if (targets.rate) line.rate = targets.rate(step);
  s.line_sums = {};
  if (schedule.evaluates(step))
    s.open.push_back({step, line, now});
  else if (targets.line)
    targets.line(line);
}

/// Once, when the device has finished and no line waits for its test result (after a stop none will come).
void tell_end(Self self, const ReportTargets& targets, const ReportedReceiver& told) {
  ReporterState& s = self->state;
  if (!s.finished || !s.open.empty() || s.told) return;
  s.told = true;
  s.total.times = times_so_far(s, targets);
  if (targets.total) targets.total(s.total);
  self->send(told, Reported{});
}

ReporterActor::behavior_type reporter(Self self, Schedule schedule, ReportTargets targets, ReportedReceiver told,
                                      StepSums so_far) {
  end_with_own_errors(self);
  self->state.line_sums = so_far;
  return {[=](const Begin&) {
            ReporterState& s = self->state;
            s.begun = s.progress_told = s.rate_since = Clock::now();
            if (targets.times) s.times_begun = targets.times();
          },
          [=](const Committed& c) {
            ReporterState& s = self->state;
            if (targets.skipped && targets.skipped(c.total)) {
              ++s.line_skipped;
            } else {
              s.line_sums.add(c.total);
            }
            s.total.steps = c.step.value + 1;
            s.total.samples += c.total.samples;
            s.total.elapsed_s = seconds(Clock::now() - s.begun);
            s.total.train_s = s.total.elapsed_s - seconds(s.evaluating);
            if (targets.step) targets.step(c.step, c.total);
            tell_progress(s, schedule, targets, c);
            if (schedule.reports(c.step)) end_line(self, schedule, targets, c.step);
          },
          [=](const TestResult& result) {
            ReporterState& s = self->state;
            if (s.open.empty() || s.open.front().step != result.step) return;
            OpenLine open = std::move(s.open.front());
            s.open.pop_front();
            s.evaluating += Clock::now() - open.trained;
            s.total.elapsed_s = open.line.elapsed_s = seconds(Clock::now() - s.begun);
            open.line.times = times_so_far(s, targets);
            if (result.sums.samples != 0) {
              open.line.test_loss = result.sums.loss / static_cast<double>(result.sums.samples);
              open.line.test_accuracy =
                  static_cast<double>(result.sums.correct) / static_cast<double>(result.sums.samples);
            }
            s.rate_since = Clock::now();
            s.rate_samples = s.total.samples;
            if (targets.line) targets.line(open.line);
            tell_end(self, targets, told);
          },
          [=](const DeviceFinished& end) {
            ReporterState& s = self->state;
            s.finished = true;
            if (end.stopped) s.open.clear();
            tell_end(self, targets, told);
          }};
}

}  // namespace

ReporterActor spawn_reporter(caf::actor_system& system, const Schedule& schedule, ReportTargets targets,
                             ReportedReceiver told, const StepSums& so_far) {
  return system.spawn(reporter, schedule, std::move(targets), std::move(told), so_far);
}

}  // namespace troupe
