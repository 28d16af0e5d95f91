#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"

namespace troupe {

/// How an epoch's samples are dealt out in steps.
enum class Scatter : std::uint8_t {
  endless,  // every step takes as many; the one in which an epoch ends takes the next one's first samples too
  exact,    // an epoch's last step takes what is left, ranks perhaps different numbers of it, perhaps none
  equal,    // the same, filled up with the epoch's own first samples until all ranks take as many
};
constexpr std::string_view name_of(Scatter scatter) noexcept {
  constexpr std::string_view kNames[] = {"endless", "exact", "equal"};
  return kNames[static_cast<std::size_t>(scatter)];
}

/// A line of a batch-size schedule: steps that begin at or after sample `first_sample` of the order take `rows` a rank
/// on average.
struct BatchChange {
  std::uint64_t first_sample = 0;
  std::uint32_t rows = 0;
  friend bool operator==(const BatchChange&, const BatchChange&) = default;
};

/// Steps of one size: from first_step on, which begins at sample first_sample, each takes `rows` times the ranks, an
/// epoch's last one perhaps less (Scatter).
struct BatchRun {
  std::uint64_t first_step = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t rows = 0;
};

/// Which samples a step takes and where epochs end: pure arithmetic on the global sample order, the same for every
/// rank. Step `first_step` + k takes positions [P + k G, P + (k+1) G) of the order, P = first_sample, G = rows a rank *
/// ranks, as long as the batch size does not change; but with Scatter::exact and equal no step goes beyond an epoch's
/// end, where the next one begins. How ranks share them is the ledger's business (ledger.hpp). A job that goes on from
/// a checkpoint starts where that stands, whatever ranks, rows and scatter made it.
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
  Scatter scatter = Scatter::endless;

  /// The steps of one size that `step` is among.
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
  /// Samples that all ranks compute in `step`: with Scatter::equal some of an epoch's last step are there twice.
  std::uint64_t computed_rows(Step step) const noexcept {
    const std::uint64_t taken = global_rows(step);
    return scatter == Scatter::equal ? (taken + ranks - 1) / ranks * ranks : taken;
  }
  /// Samples of the order that were taken when `step` begins.
  std::uint64_t samples_before(Step step) const noexcept {
    const BatchRun run = run_at(step);
    return position_in(run, step.value - run.first_step);
  }
  /// How many steps it takes, those before first_step counted, to have taken `samples` samples of the order.
  std::uint64_t steps_until(std::uint64_t samples) const noexcept {
    if (samples <= first_sample) return first_step;
    BatchRun run{first_step, first_sample, rows};
    for (const BatchRun& next : later) {
      if (next.first_sample >= samples) break;
      run = next;
    }
    return run.first_step + steps_in(run, samples);
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
  /// How much of that epoch's samples were taken once `step` is done; 1: its last one too.
  double epoch_part(Step step) const noexcept {
    const std::uint64_t inside = (samples_before(step) + global_rows(step)) % train_samples;
    return inside == 0 || ends_epoch(step) ? 1 : static_cast<double>(inside) / static_cast<double>(train_samples);
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
  std::uint64_t full_step(const BatchRun& run) const noexcept { return std::uint64_t{run.rows} * ranks; }
  /// The end of the epoch in which `run` begins.
  std::uint64_t first_end(const BatchRun& run) const noexcept {
    return (run.first_sample / train_samples + 1) * train_samples;
  }
  static std::uint64_t parts_of(std::uint64_t whole, std::uint64_t each) noexcept { return (whole + each - 1) / each; }
  /// The sample at which the step `into` steps after the first of `run` begins.
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
  /// The first `into` whose position_in() is at `samples` or beyond it, which is beyond the beginning of `run`.
  std::uint64_t steps_in(const BatchRun& run, std::uint64_t samples) const noexcept {
    const std::uint64_t each = full_step(run);
    const std::uint64_t end = first_end(run);
    if (scatter == Scatter::endless || samples <= end) return parts_of(samples - run.first_sample, each);
    const std::uint64_t after = samples - end;
    return parts_of(end - run.first_sample, each) + after / train_samples * parts_of(train_samples, each) +
           parts_of(after % train_samples, each);
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
