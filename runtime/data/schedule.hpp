#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"

namespace troupe {

/// How an epoch's samples are divided into steps.
enum class Scatter : std::uint8_t {
  endless,  // all steps take the same number; the step in which an epoch ends also takes the next one's first samples
  exact,    // an epoch's last step takes the samples that are left; ranks may get different numbers, or none
  equal,    // the same, filled up with the epoch's first samples until all ranks take the same number
};
constexpr std::string_view name_of(Scatter scatter) noexcept {
  constexpr std::string_view kNames[] = {"endless", "exact", "equal"};
  return kNames[static_cast<std::size_t>(scatter)];
}

/// A line of a batch-size schedule: steps that begin at or after sample `first_sample` of the order take a mean of
/// `rows` rows per rank.
struct BatchChange {
  std::uint64_t first_sample = 0;
  std::uint32_t rows = 0;
  friend bool operator==(const BatchChange&, const BatchChange&) = default;
};

/// Steps of one size: from first_step on, which begins at sample first_sample, each takes `rows` times the ranks; an
/// epoch's last step may take less (Scatter).
struct BatchRun {
  std::uint64_t first_step = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t rows = 0;
};

/// Which samples a step takes and where epochs end: pure arithmetic on the global sample order, the same for every
/// rank. Step `first_step` + k takes positions [P + k G, P + (k+1) G) of the order, P = first_sample, G = rows per rank
/// * ranks, while the batch size does not change; but with Scatter::exact and equal a step never passes the end of an
/// epoch, where the next step begins. The ledger (sample_ledger.hpp) divides a step among ranks. A job that resumes
/// from a checkpoint starts at the checkpoint's position, whatever ranks, rows and scatter it had.
struct Schedule {
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint32_t rows = 0;  // mean per rank and step, from first_step on
  std::uint32_t ranks = 1;
  std::uint64_t steps = 0;           // in total, including those before first_step
  std::uint32_t evaluate_every = 1;  // epochs; 0: never
  std::uint64_t first_step = 0;
  std::uint64_t first_sample = 0;
  std::vector<BatchRun> later{};  // later batch sizes, in order
  Scatter scatter = Scatter::endless;

  /// The steps of one size that include `step`.
  BatchRun run_at(Step step) const noexcept {
    BatchRun run{first_step, first_sample, rows};
    for (const BatchRun& next : later) {
      if (next.first_step > step.value) break;
      run = next;
    }
    return run;
  }
  /// Samples of the order that `step` takes, over all ranks.
  std::uint64_t global_rows(Step step) const noexcept {
    const BatchRun run = run_at(step);
    const std::uint64_t into = step.value - run.first_step;
    return position_in(run, into + 1) - position_in(run, into);
  }
  /// Samples that all ranks compute in `step`: with Scatter::equal some occur twice in an epoch's last step.
  std::uint64_t computed_rows(Step step) const noexcept {
    const std::uint64_t taken = global_rows(step);
    return scatter == Scatter::equal ? (taken + ranks - 1) / ranks * ranks : taken;
  }
  /// Samples of the order that were taken before `step` begins.
  std::uint64_t samples_before(Step step) const noexcept {
    const BatchRun run = run_at(step);
    return position_in(run, step.value - run.first_step);
  }
  /// How many steps, including those before first_step, it takes until `samples` samples of the order are taken.
  std::uint64_t steps_until(std::uint64_t samples) const noexcept {
    if (samples <= first_sample) return first_step;
    BatchRun run{first_step, first_sample, rows};
    for (const BatchRun& next : later) {
      if (next.first_sample >= samples) break;
      run = next;
    }
    return run.first_step + steps_in(run, samples);
  }
  /// Number of epochs whose samples are all taken after `step`.
  std::uint32_t epochs_done(Step step) const noexcept {
    return static_cast<std::uint32_t>((samples_before(step) + global_rows(step)) / train_samples);
  }
  bool is_last(Step step) const noexcept { return step.value + 1 >= steps; }
  /// Whether an epoch's last sample is among those of `step`.
  bool ends_epoch(Step step) const noexcept { return epochs_done(step) > epochs_before(step); }
  /// Whether a line is reported after `step`: an epoch or the run ends.
  bool reports(Step step) const noexcept { return ends_epoch(step) || is_last(step); }
  /// The number of the line that `step` ends, counted from 1; a run that ends within an epoch counts that epoch.
  std::uint32_t epoch_number(Step step) const noexcept {
    const bool inside = (samples_before(step) + global_rows(step)) % train_samples != 0;
    const bool ends = epochs_done(step) > epochs_before(step);
    return epochs_done(step) + (inside && !ends ? 1 : 0);
  }
  /// The fraction of that epoch's samples that are taken after `step`; 1: all.
  double epoch_part(Step step) const noexcept {
    const std::uint64_t inside = (samples_before(step) + global_rows(step)) % train_samples;
    return inside == 0 || ends_epoch(step) ? 1 : static_cast<double>(inside) / static_cast<double>(train_samples);
  }
  /// Whether the test set is evaluated after `step`.
  bool evaluates(Step step) const noexcept {
    return evaluate_every != 0 && test_samples != 0 && reports(step) &&
           (epoch_number(step) % evaluate_every == 0 || is_last(step));
  }

 private:
  std::uint32_t epochs_before(Step step) const noexcept {
    return static_cast<std::uint32_t>(samples_before(step) / train_samples);
  }
  std::uint64_t full_step(const BatchRun& run) const noexcept { return std::uint64_t{run.rows} * ranks; }
  /// The end of the epoch in which `run` begins.
  std::uint64_t first_end(const BatchRun& run) const noexcept {
    return (run.first_sample / train_samples + 1) * train_samples;
  }
  static std::uint64_t parts_of(std::uint64_t whole, std::uint64_t each) noexcept { return (whole + each - 1) / each; }
  /// The sample at which the step begins that is `into` steps after the first step of `run`.
  std::uint64_t position_in(const BatchRun& run, std::uint64_t into) const noexcept {
    const std::uint64_t each = full_step(run);
    if (scatter == Scatter::endless) return run.first_sample + into * each;
    const std::uint64_t end = first_end(run);
    const std::uint64_t until_end = parts_of(end - run.first_sample, each);
    if (into < until_end) return run.first_sample + into * each;
    const std::uint64_t an_epoch = parts_of(train_samples, each);
    const std::uint64_t after = into - until_end;
    return end + after / an_epoch * train_samples + after % an_epoch * each;
  }
  /// The smallest `into` whose position_in() is at least `samples`, which is after the beginning of `run`.
  std::uint64_t steps_in(const BatchRun& run, std::uint64_t samples) const noexcept {
    const std::uint64_t each = full_step(run);
    const std::uint64_t end = first_end(run);
    if (scatter == Scatter::endless || samples <= end) return parts_of(samples - run.first_sample, each);
    const std::uint64_t after = samples - end;
    return parts_of(end - run.first_sample, each) + after / train_samples * parts_of(train_samples, each) +
           parts_of(after % train_samples, each);
  }
};

/// `schedule` with the batch sizes in `changes`, in order: its rows are those valid at its first sample; each later
/// change begins with the first step that begins at its sample or later.
inline Schedule with_batches(Schedule schedule, std::span<const BatchChange> changes) {
  schedule.later.clear();
  for (const BatchChange& change : changes) {
    if (change.first_sample <= schedule.first_sample) {
      schedule.rows = change.rows;
      continue;
    }
    const Step step{schedule.steps_until(change.first_sample)};
    const BatchRun run{step.value, schedule.samples_before(step), change.rows};
    // Of two changes that begin with the same step the second is valid.
    if (!schedule.later.empty() && schedule.later.back().first_step == run.first_step)
      schedule.later.back() = run;
    else
      schedule.later.push_back(run);
  }
  return schedule;
}

}  // namespace troupe
