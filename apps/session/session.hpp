#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/blocking.hpp"
#include "runtime/clock.hpp"
#include "runtime/config.hpp"
#include "runtime/data/find.hpp"
#include "runtime/error.hpp"
#include "runtime/plan.hpp"
#include "runtime/report.hpp"
#include "runtime/stream.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe {

/// What a session tells its app. Called on threads of the session, one call at a time; must not block for long. Rank 0
/// hears all; the others only `note` and `started`.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  /// Something a person should know (which data, who is missing, who has fallen silent). On every rank.
  virtual void note(const std::string&) {}
  /// The plan stands; training begins.
  virtual void started(const Plan&, const std::string& /*device*/, const DataPlace&) {}
  virtual void progress(const RunProgress&) {}
  virtual void epoch(const EpochReport&) {}
  /// Every committed step in order, when `SessionOptions::every_step` asks for it.
  virtual void step(Step, const StepSums&) {}
};

struct SessionOptions {
  Configuration configuration;
  DataPlace data;
  std::optional<LaunchPlace> place;     // absent: a job of one rank
  SessionListener* listener = nullptr;  // outlives the session
  bool every_step = false;
  std::optional<std::chrono::milliseconds> time_limit;  // end after this much training time (benchmarks)
};

/// How a run ended.
struct RunResult {
  Status status;         // ok: all steps done, or stopped on request
  bool stopped = false;  // by request_stop() somewhere in the job
  RunTotal total;        // rank 0's; the other ranks count steps only
  std::vector<EpochReport> epochs;
  std::uint64_t saved_steps = 0;      // of the newest checkpoint that the run saved; 0: none
  std::uint64_t parameters_hash = 0;  // xxh3 of the f32 parameters' bytes at the end
};

/// One rank of a training job inside the calling process: builds transport, arena, device and actors from the plan,
/// runs them, takes them down. It installs no signal handlers, prints nothing, and never calls exit().
class Session {
 public:
  /// Joins the job and builds everything, up to the first step. Throws Error as Bootstrap::join and the parts do.
  static std::unique_ptr<Session> start(Blocking& blocking, SessionOptions options);
  virtual ~Session() = default;
  virtual const Plan& plan() const = 0;
  /// Trains to the end, a stop, or a failure; never throws for what goes wrong on the way: that is in the result.
  virtual RunResult run(Blocking& blocking) = 0;
  /// Asks the whole job to end after the steps now under way; all ranks end at the same step. Any thread, signal
  /// handlers not.
  virtual void request_stop() noexcept = 0;
  /// What this rank is doing, some lines for people: step and epoch, how far each rank of this node has come, what is
  /// under way to other ranks. Any thread, also while run() waits. Never throws for what it cannot find out: it says
  /// so.
  virtual std::string describe(Blocking& blocking, Deadline deadline) = 0;
  /// The current parameters as bytes of f32 in the layout's order; only when run() is over.
  virtual std::vector<float> parameters() const = 0;
};

/// The plan that ranks of a local run would make, without running and without reading images. Throws Error as they
/// would.
Plan preview(const Configuration& configuration, const DataPlace& data);

}  // namespace troupe
