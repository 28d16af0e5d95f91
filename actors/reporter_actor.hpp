#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "actors/messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/report/report.hpp"

namespace troupe {

/// The state of the report when a view is retired, for the next view's reporter.
struct ReportSoFar {
  StepSums line_sums;              // of the steps since the last line
  std::uint64_t line_steps = 0;    // number of these steps
  std::uint64_t line_skipped = 0;  // of these steps
  double line_train_s = 0;         // before them
  StepSums part_sums;              // of the steps since the last StepsReport
  double part_train_s = 0;         // before them
  RunTotal total;                  // includes `times`
  Clock::duration evaluating{};    // time spent on evaluation
  Clock::time_point begun{};       // of the run; zero: it begins with this view
};

/// Where the reporter's results go; called on its thread, must not block for long. Empty functions are not called.
struct ReportTargets {
  std::function<void(Step, const StepSums&)> step;   // every committed step, in order
  std::function<void(const RunProgress&)> progress;  // at most five times a second
  std::function<void(const EpochReport&)> line;
  std::function<void(const StepsReport&)> steps{};  // after each `steps_every` steps of a line; empty: never
  std::uint64_t steps_every = 0;
  /// The test result of a line when it is known, which may be before the line is passed on.
  std::function<void(Step, const EpochReport&)> tested{};
  std::function<void(const RunTotal&)> total;         // once, before Reported
  std::function<void(const ReportSoFar&)> retired{};  // instead, when the view is retired
  std::function<double(Step)> rate{};                 // the learning rate of a step; empty: unknown
  std::function<bool(const StepSums&)> skipped{};     // whether a step changed nothing; empty: none did
  std::function<StreamTimes()> times;                 // how a stream has spent its time so far; empty: unknown
  /// The number of ranks whose apps may report values: a line waits for them (RankValues); 0: there are no values.
  std::uint32_t value_ranks = 0;
  /// How long the run's last lines wait, after all steps, for the values of ranks whose apps have not ended their
  /// loops.
  std::chrono::milliseconds values_within{10000};
  bool texts = false;         // whether a text is generated after each evaluation: its line waits for it
  TraceRow* trace = nullptr;  // null: nothing is traced
};

/// Rank 0's reporter: receives every step, test result and reported value, and never answers; tells `told` (Membership)
/// when the last line was passed on. If a run is stopped within an epoch, a line covers the part of it.
using ReporterActor = ActorOf<Takes<Begin>, Takes<Committed>, Takes<TestResult>, Takes<RankValues>,
                              Takes<TextGenerated>, Takes<DeviceFinished>, Takes<ValuesOverdue>>;
using RankValuesReceiver = ActorOf<Takes<RankValues>>;
using ReportedReceiver = ActorOf<Takes<Reported>>;

/// `so_far`: before the schedule's first step; if the run resumes from a checkpoint it has only the line's sums.
ReporterActor spawn_reporter(caf::actor_system& system, const Schedule& schedule, ReportTargets targets,
                             ReportedReceiver receiver, const ReportSoFar& so_far = {});

}  // namespace troupe
