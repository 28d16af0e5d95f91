#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/session/log_writer.hpp"
#include "apps/session/session.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/folder_lock.hpp"

namespace troupe {

class RankSession;

/// A session of train.non_finite = "roll_back": when all ranks have judged a step's gradient not to be finite, run()
/// takes the session down, joins the job again, and goes on from the newest checkpoint of this run with a lower rate,
/// train.roll_backs times at most. Every rank does so by itself, since all have the same verdict on the same step; the
/// job keeps its processes, its place and its secret. An app that owns its loop is told instead: finish() has the
/// verdict.
class RollBackSession final : public Session {
 public:
  /// Joins the job for the first time. `log`: the listener in `options`, where that is one.
  RollBackSession(Blocking& blocking, SessionOptions options, std::unique_ptr<LogWriter> log);
  ~RollBackSession() override;

  const Plan& plan() const override;
  /// The result is the last session's; its lines and totals count the sessions before it too.
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
  RankSession& current() const;
  /// Takes the session down and makes the next one. No rank waits for another before all meet again.
  void go_back(Blocking& blocking, RunResult& ended, const std::string& reason);

  SessionOptions options_;          // of the next session; its listener is the relay
  std::unique_ptr<LogWriter> log_;  // null: no log is kept here
  std::unique_ptr<Relay> relay_;
  Fd meeting_;                              // rank 0: the socket at which the ranks meet, where a launcher gave one
  std::mutex mutex_;                        // guards session_, where it changes, and stop_
  std::shared_ptr<RankSession> session_;    // null while it goes back; read freely by the thread that runs it
  bool stop_ = false;                       // was requested
  std::shared_ptr<const FolderLock> lock_;  // held from session to session
};

}  // namespace troupe
