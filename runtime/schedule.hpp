#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ids.hpp"

namespace troupe {

/// A line of a batch-size schedule: steps that begin at or after sample `first_sample` of the order take `rows` a rank
/// on average.
struct BatchChange {
  std::uint64_t first_sample = 0;
  std::uint32_t rows = 0;
  friend bool operator==(const BatchChange&, const BatchChange&) = default;
};

/// Steps of one size: from first_step on, which begins at sample first_sample, each takes `rows` times the ranks.
struct BatchRun {
  std::uint64_t first_step = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t rows = 0;
};

/// Which samples a step takes and where epochs end: pure arithmetic on the global sample order, the same for every
/// rank. Step `first_step` + k takes positions [P + k G, P + (k+1) G) of the order, P = first_sample, G = rows a rank *
/// ranks, as long as the batch size does not change; how ranks share them is the ledger's business (ledger.hpp). A job
/// that goes on from a checkpoint starts where that stands, whatever ranks and rows made it.
struct Schedule {
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint32_t rows = 0;  // a rank and step on average, from first_step on
  std::uint32_t ranks = 1;
  std::uint64_t steps = 0;           // in all, those before first_step counted
  std::uint32_t evaluate_every = 1;  // epochs; 0: never
  std::uint64_t first_step = 0;
  std::uint64_t first_sample = 0;
  std::vector<BatchRun> later{};  // where the batch size changes, in order

  /// The steps of one size that `step` is among.
  BatchRun run_at(Step step) const noexcept {
    BatchRun run{first_step, first_sample, rows};
    for (const BatchRun& next : later) {
      if (next.first_step > step.value) break;
      run = next;
    }
    return run;
  }
  /// Samples that `step` takes, over all ranks.
  std::uint64_t global_rows(Step step) const noexcept { return std::uint64_t{run_at(step).rows} * ranks; }
  /// Samples of the order that were taken when `step` begins.
  std::uint64_t samples_before(Step step) const noexcept {
    const BatchRun run = run_at(step);
    return run.first_sample + (step.value - run.first_step) * run.rows * ranks;
  }
  /// How many steps it takes, those before first_step counted, to have taken `samples` samples of the order.
  std::uint64_t steps_until(std::uint64_t samples) const noexcept {
    if (samples <= first_sample) return first_step;
    BatchRun run{first_step, first_sample, rows};
    for (const BatchRun& next : later) {
      if (next.first_sample >= samples) break;
      run = next;
    }
    const std::uint64_t each = std::uint64_t{run.rows} * ranks;
    return run.first_step + (samples - run.first_sample + each - 1) / each;
  }
  /// Epochs whose samples were all taken once `step` is done.
  std::uint32_t epochs_done(Step step) const noexcept {
    return static_cast<std::uint32_t>((samples_before(step) + global_rows(step)) / train_samples);
  }
  bool is_last(Step step) const noexcept { return step.value + 1 >= steps; }
  /// Whether an epoch's last sample is among those of `step`.
  bool ends_epoch(Step step) const noexcept { return epochs_done(step) > epochs_before(step); }
  /// Whether a line is reported after `step`: an epoch ends, or the run does.
  bool reports(Step step) const noexcept { return ends_epoch(step) || is_last(step); }
  /// The number of the line that `step` ends, from 1; a run that ends inside an epoch counts it.
  std::uint32_t epoch_number(Step step) const noexcept {
    const bool inside = (samples_before(step) + global_rows(step)) % train_samples != 0;
    const bool ends = epochs_done(step) > epochs_before(step);
    return epochs_done(step) + (inside && !ends ? 1 : 0);
  }
  /// Whether the test set is gone through after `step`.
  bool evaluates(Step step) const noexcept {
    return evaluate_every != 0 && test_samples != 0 && reports(step) &&
           (epoch_number(step) % evaluate_every == 0 || is_last(step));
  }

 private:
  std::uint32_t epochs_before(Step step) const noexcept {
    return static_cast<std::uint32_t>(samples_before(step) / train_samples);
  }
};

/// `schedule` with its batch sizes by `changes`, which are in order: its rows are those in force at its first sample,
/// each later change begins with the first step that begins at its sample or after it.
inline Schedule with_batches(Schedule schedule, std::span<const BatchChange> changes) {
  schedule.later.clear();
  for (const BatchChange& change : changes) {
    if (change.first_sample <= schedule.first_sample) {
      schedule.rows = change.rows;
      continue;
    }
    const Step step{schedule.steps_until(change.first_sample)};
    const BatchRun run{step.value, schedule.samples_before(step), change.rows};
    // Of two that begin with one step the second is in force.
    if (!schedule.later.empty() && schedule.later.back().first_step == run.first_step)
      schedule.later.back() = run;
    else
      schedule.later.push_back(run);
  }
  return schedule;
}

}  // namespace troupe
