#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/session/job.hpp"
#include "apps/session/session.hpp"

namespace troupe {

class View;
struct ViewState;

/// What Session::start makes: a job, and the view of it that this rank works in. A view that all ranks have retired
/// after the same step gives way to another one, which goes on from its state in memory. With train.non_finite =
/// "roll_back", when all ranks have judged a step's gradient not to be finite, run() ends the view and makes another
/// one in the same job, which goes on from the newest checkpoint of this run with a lower rate, train.roll_backs times
/// at most. Every rank does so by itself, since all have the same verdict on the same step. An app that owns its loop
/// is told instead: finish() has the verdict.
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
  /// Throws Error{invalid} while the run has no view, and Error{aborted} when it has ended; as does rebuild().
  std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                              Deadline deadline) override;
  Rebuilt rebuild(Blocking& blocking, const std::string& reason, Deadline deadline) override;
  std::string describe(Blocking& blocking, Deadline deadline) override;
  std::string machines(Blocking& blocking, Deadline deadline) override {
    return job_->machines(blocking, deadline);
  }
  std::vector<float> parameters() const override;

 private:
  class Relay;
  class Use;

  /// Throws Error{invalid} when going back has failed, so that there is none.
  View& current() const;
  RunResult run_views(Blocking& blocking);
  /// Ends the view and makes the next one. No rank waits for another before all meet again.
  void go_back(Blocking& blocking, RunResult& ended, const std::string& reason);
  /// The view was retired: makes the next one of what it leaves.
  void go_over(Blocking& blocking);
  /// Nobody else uses the view any more when this returns: it is gone.
  void drop_view(Blocking& blocking);
  void set_view(std::shared_ptr<View> view);
  /// No view follows: who waits for one is told, and the job is left.
  void end_run(Blocking& blocking) noexcept;
  void leave(Blocking& blocking) noexcept;

  std::unique_ptr<Relay> relay_;  // the job's listener
  std::unique_ptr<Job> job_;
  std::mutex mutex_;            // guards what follows; view_ where it changes
  std::shared_ptr<View> view_;  // null between two; read freely by the thread that runs it; each Use has a copy
  std::condition_variable changed_;
  std::string reason_;           // of the rebuild that is asked for
  std::optional<Rebuilt> last_;  // newest rebuild
  std::uint64_t rebuilds_ = 0;   // so far
  bool over_ = false;            // no view follows
  bool stop_ = false;            // was requested
};

}  // namespace troupe
