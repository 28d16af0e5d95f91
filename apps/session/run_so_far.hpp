#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/session/checkpoint_start.hpp"
#include "apps/session/job.hpp"
#include "apps/session/run_log.hpp"
#include "apps/session/session.hpp"
#include "runtime/data/load_balancer.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/report/early_stop.hpp"

namespace troupe {

/// What is told of a run so far, whichever of its views does the work: one after the other has it. Views say what they
/// see; this makes notes of it, lines of the log, and the decisions that depend on what was seen before. All but the
/// result, judge() and `device_threads` is rank 0's.
class RunSoFar {
 public:
  /// `job` outlives it.
  explicit RunSoFar(Job& job) : job_(job) {}

  RunResult result;                           // the reporter's thread writes it, run() reads it after the end
  std::uint32_t device_threads = 0;           // that a trial of this rank chose; 0: there was none
  std::optional<LedgerSpan> shares_measured;  // the newest; nothing: no shares were measured. The balancer's thread

  // Before the reporter begins, and then on its thread:
  /// With evaluate.patience: begins with the evaluations up to `start`. `seen`: those of this run's earlier views,
  /// which may not be in the log yet; null: there was none, so those in report.dir's log of the run that the job
  /// resumes. Sets `start.over` if they end the run.
  void begin_early_stop(CheckpointStart& start, const std::vector<LoggedEvaluation>* seen);
  /// That evaluate.patience counts, in order. After run().
  const std::vector<LoggedEvaluation>& evaluations() const noexcept { return evaluations_; }
  bool stops_early() const noexcept { return early_stop_.has_value(); }
  /// Why evaluations ended the run.
  std::string early_stop_reason() const { return early_stop_->reason(); }
  /// Whether the run ends after `step` because of the evaluation in `line`.
  bool is_last_evaluation(const EpochReport& line, bool is_last_step);
  void take_line(EpochReport line);
  /// Whether SessionOptions::time_limit has passed since the first call.
  bool has_no_time_left();

  // On the device actor's thread:
  /// Whether the run continues. Rank 0 notes which steps were left out.
  Status judge(Step step, const StepSums& total, const LossScaleState& scale, PolicyKind policy);
  /// After run(): what was not finite, "step 5: the gradient of l1.weight, first at rank 1"; empty: nothing.
  const std::string& bad_step() const noexcept { return bad_step_; }
  /// From `step` on, before which `samples` were taken, `policy` is used. Without a reason the plan's next policy
  /// begins.
  void take_switch(Step step, std::uint64_t samples, const PolicySettings& policy, const std::string& reason);

  // On the balancer's thread:
  /// Notes what changed, and, if it is new, which ranks the others wait for.
  void take_window(const ShareWindow& window);
  /// The entries of update.switch that wait for a straggler apply one after the other, each once. Null: none does now.
  const PolicySettings* switch_for_straggler(const ShareWindow& window);

  /// The newest one; without ranks if there was none. Any thread.
  ShareWindow newest_window() const;

 private:
  /// From `step` on, this rank's loss was scaled so.
  struct ScaleChange {
    Step step;
    float scale = 1;
  };
  void note_scale(Step step, float scale);
  void note_not_finite(const EpochReport& line);

  Job& job_;
  std::optional<EarlyStop> early_stop_;            // with evaluate.patience; the reporter's thread
  std::vector<LoggedEvaluation> evaluations_;      // that it has got; the reporter's thread
  std::optional<Deadline> time_limit_;             // once the first step was told; the reporter's thread
  std::set<std::string, std::less<>> not_finite_;  // values that a note has told of; the reporter's thread
  std::uint64_t left_out_ = 0;                     // steps; the device actor's thread
  std::string bad_step_;                           // the device actor's thread, before the run ends
  std::size_t straggler_switches_ = 0;             // that were requested; the balancer's thread
  std::optional<Straggler> straggler_;             // the last one that was noted; the balancer's thread
  mutable std::mutex mutex_;                       // guards all below
  ShareWindow window_;                             // the newest; without ranks: there was none
  std::vector<SwitchReport> switches_;             // that are not in a line yet
  std::vector<ScaleChange> scales_;                // of the loss; empty: it is not scaled
};

}  // namespace troupe
