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

/// What Session::start makes: a job, and the view in which this rank trains. When all ranks have retired a view after
/// the same step, another view replaces it, which continues from its state in memory. With train.non_finite =
/// "roll_back", when all ranks have found that a step's gradient is not finite, run() ends the view and makes another
/// one in the same job. It resumes from this run's newest checkpoint with a lower learning rate, at most
/// train.roll_backs times. Every rank does so by itself, since all ranks reach the same verdict on the same step. An
/// app that owns its loop gets the verdict from finish() instead.
class JobSession final : public Session {
 public:
  /// `log`: the listener in `options`, if the session has to own it.
  JobSession(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log);
  ~JobSession() override;

  const Plan& plan() const override { return job_->joined().plan; }
  /// The result is the last view's; its lines and totals include the earlier views.
  RunResult run(Blocking& blocking) override;
  std::optional<BatchView> next(Blocking& blocking) override;
  std::optional<StepSums> step(Blocking& blocking) override;
  std::optional<StepSums> exchange(Blocking& blocking, const StepSums& own) override;
  void report(std::string_view name, double value) override;
  const std::vector<SessionTensor>& tensors() const override;
  RunResult finish(Blocking& blocking) override;
  void request_stop() noexcept override;
  /// Throws Error{invalid} while the run has no view, and Error{aborted} when the run has ended. So does rebuild().
  std::uint64_t switch_policy(Blocking& blocking, const PolicySettings& policy, const std::string& reason,
                              Deadline deadline) override;
  Rebuilt rebuild(Blocking& blocking, const std::string& reason, Deadline deadline) override;
  std::string describe(Blocking& blocking, Deadline deadline) override;
  std::string machines(Blocking& blocking, Deadline deadline) override;
  std::vector<float> parameters() const override;

 private:
  class Relay;
  class Use;

  /// Throws Error{invalid} if there is none, because returning to a checkpoint failed.
  View& current() const;
  RunResult run_views(Blocking& blocking);
  /// Ends the view and makes the next one from a checkpoint. Ranks wait for each other only when the next view starts.
  void roll_back(Blocking& blocking, RunResult& ended, const std::string& reason);
  /// The view was retired: makes the next one from the state that it left.
  void continue_in_next_view(Blocking& blocking);
  /// Destroys the view. Waits until no other thread uses it.
  void drop_view(Blocking& blocking);
  void set_view(std::shared_ptr<View> view);
  /// No view follows: threads that wait for one get an error, and the job is left.
  void end_run(Blocking& blocking) noexcept;
  void leave(Blocking& blocking) noexcept;

  std::unique_ptr<Relay> relay_;  // the job's listener
  std::unique_ptr<Job> job_;
  mutable std::mutex mutex_;    // guards the members below; view_ when it changes
  std::shared_ptr<View> view_;  // null between two views; the running thread reads it without the mutex
  std::condition_variable changed_;
  std::string reason_;           // of the rebuild that was requested
  std::optional<Rebuilt> last_;  // the newest rebuild
  std::uint64_t rebuilds_ = 0;   // so far
  bool over_ = false;            // no view follows
  bool stop_ = false;            // was requested
};

}  // namespace troupe
