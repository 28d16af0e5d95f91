#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/session/job.hpp"
#include "apps/session/session.hpp"

namespace troupe {

class View;

/// What Session::start makes: a job, and the view of it that this rank works in. With train.non_finite = "roll_back",
/// when all ranks have judged a step's gradient not to be finite, run() ends the view and makes another one in the same
/// job, which goes on from the newest checkpoint of this run with a lower rate, train.roll_backs times at most. Every
/// rank does so by itself, since all have the same verdict on the same step. An app that owns its loop is told instead:
/// finish() has the verdict.
class JobSession final : public Session {
 public:
  /// `log`: the listener in `options`, where that is one.
  JobSession(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log);
  ~JobSession() override;

  const Plan& plan() const override { return job_->joined().plan; }
  /// The result is the last view's; its lines and totals count the views before it too.
  RunResult run(Blocking& blocking) override;
  std::optional<BatchView> next(Blocking& blocking) override;
  std::optional<StepSums> step(Blocking& blocking) override;
  std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own) override;
  void report(std::string_view name, double value) override;
  const std::vector<SessionTensor>& tensors() const override;
  RunResult finish(Blocking& blocking) override;
  void request_stop() noexcept override;
  /// Throws Error{invalid} while the run goes back, too.
  std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                              Deadline deadline) override;
  std::string describe(Blocking& blocking, Deadline deadline) override;
  std::vector<float> parameters() const override;

 private:
  class Relay;

  /// Throws Error{invalid} when going back has failed, so that there is none.
  View& current() const;
  RunResult run_views(Blocking& blocking);
  /// Ends the view and makes the next one. No rank waits for another before all meet again.
  void go_back(Blocking& blocking, RunResult& ended, const std::string& reason);
  void leave(Blocking& blocking) noexcept;

  std::unique_ptr<Relay> relay_;  // the job's listener
  std::unique_ptr<Job> job_;
  std::mutex mutex_;            // guards view_, where it changes, and stop_
  std::shared_ptr<View> view_;  // null while it goes back; read freely by the thread that runs it
  bool stop_ = false;           // was requested
};

}  // namespace troupe
