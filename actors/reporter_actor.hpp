#pragma once

#include <functional>

#include "actors/messages.hpp"
#include "runtime/report.hpp"
#include "runtime/schedule.hpp"

namespace troupe {

/// Where the reporter's findings go; called on its thread, must not block for long. Empty functions are not called.
struct ReportTargets {
  std::function<void(Step, const StepSums&)> step;   // every committed step, in order
  std::function<void(const RunProgress&)> progress;  // at most five times a second
  std::function<void(const EpochReport&)> line;
  std::function<void(const RunTotal&)> total;      // once, before `told`
  std::function<double(Step)> rate{};              // the learning rate of a step; empty: nothing is known
  std::function<bool(const StepSums&)> skipped{};  // whether a step changed nothing; empty: none did
  std::function<StreamTimes()> times;              // asked for what a stream has spent so far; empty: nothing is known
};

/// Rank 0's: is told of every step and test result, and never answers; tells `told` (Membership) when the last line is
/// out.
using ReporterActor = ActorOf<Takes<Begin>, Takes<Committed>, Takes<TestResult>, Takes<DeviceFinished>>;
using ReportedReceiver = ActorOf<Takes<Reported>>;

/// `so_far`: what the epoch under way amounted to before the schedule's first step.
ReporterActor spawn_reporter(caf::actor_system& system, const Schedule& schedule, ReportTargets targets,
                             ReportedReceiver told, const StepSums& so_far = {});

}  // namespace troupe
