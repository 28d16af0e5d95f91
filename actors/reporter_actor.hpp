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

/// How far the report has come when a view is retired, for the next one's reporter.
struct ReportSoFar {
  StepSums line_sums;              // of the steps since the last line
  std::uint64_t line_steps = 0;    // those
  std::uint64_t line_skipped = 0;  // of them
  double line_train_s = 0;         // before them
  StepSums part_sums;              // of the steps since the last StepsReport
  double part_train_s = 0;         // before them
  RunTotal total;                  // with `times`
  Clock::duration evaluating{};    // time that went to evaluation
  Clock::time_point begun{};       // the run; zero: it begins with this view
};

/// Where the reporter's findings go; called on its thread, must not block for long. Empty functions are not called.
struct ReportTargets {
  std::function<void(Step, const StepSums&)> step;   // every committed step, in order
  std::function<void(const RunProgress&)> progress;  // at most five times a second
  std::function<void(const EpochReport&)> line;
  std::function<void(const StepsReport&)> steps{};  // after each `steps_every` steps of a line; empty: never
  std::uint64_t steps_every = 0;
  /// A line's test result, when it comes, which may be before the line is told.
  std::function<void(Step, const EpochReport&)> tested{};
  std::function<void(const RunTotal&)> total;         // once, before `told`
  std::function<void(const ReportSoFar&)> retired{};  // the same, when the view is
  std::function<double(Step)> rate{};                 // the learning rate of a step; empty: nothing is known
  std::function<bool(const StepSums&)> skipped{};     // whether a step changed nothing; empty: none did
  std::function<StreamTimes()> times;  // asked for what a stream has spent so far; empty: nothing is known
  /// Ranks whose apps may report values: a line waits for theirs (RankValues); 0: nobody reports any.
  std::uint32_t value_ranks = 0;
  /// How long the run's last lines wait for the values of ranks whose apps have not ended their loops, once all steps
  /// are done.
  std::chrono::milliseconds values_within{10000};
  TraceRow* trace = nullptr;  // null: nothing is noted
};

/// Rank 0's: is told of every step, test result and reported value, and never answers; tells `told` (Membership) when
/// the last line is out. A run that is stopped inside an epoch has a line for the part of it.
using ReporterActor = ActorOf<Takes<Begin>, Takes<Committed>, Takes<TestResult>, Takes<RankValues>,
                              Takes<DeviceFinished>, Takes<ValuesOverdue>>;
using RankValuesReceiver = ActorOf<Takes<RankValues>>;
using ReportedReceiver = ActorOf<Takes<Reported>>;

/// `so_far`: before the schedule's first step; of a run that resumes from a checkpoint the line's sums alone.
ReporterActor spawn_reporter(caf::actor_system& system, const Schedule& schedule, ReportTargets targets,
                             ReportedReceiver told, const ReportSoFar& so_far = {});

}  // namespace troupe
