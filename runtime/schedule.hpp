#pragma once

#include <cstdint>

#include "runtime/ids.hpp"

namespace troupe {

/// Which samples a step takes and where epochs end: pure arithmetic on the global sample order, the same for every
/// rank. Step `first_step` + k takes positions [P + k G, P + (k+1) G) of the order, P = first_sample, G = rows a rank *
/// ranks; rank r the r-th part of it. A job that goes on from a checkpoint starts where that stands, whatever ranks and
/// rows made it.
struct Schedule {
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint32_t rows = 0;  // a rank and step
  std::uint32_t ranks = 1;
  std::uint64_t steps = 0;           // in all, those before first_step counted
  std::uint32_t evaluate_every = 1;  // epochs; 0: never
  std::uint64_t first_step = 0;
  std::uint64_t first_sample = 0;

  std::uint64_t global_rows() const noexcept { return std::uint64_t{rows} * ranks; }
  std::uint64_t first_position(Step step, Rank rank) const noexcept {
    return samples_before(step) + std::uint64_t{rows} * rank.value;
  }
  /// Samples of the order that were taken when `step` begins.
  std::uint64_t samples_before(Step step) const noexcept {
    return first_sample + (step.value - first_step) * global_rows();
  }
  /// How many steps it takes, from first_step on, to have taken `samples` samples of the order.
  std::uint64_t steps_until(std::uint64_t samples) const noexcept {
    if (samples <= first_sample) return first_step;
    return first_step + (samples - first_sample + global_rows() - 1) / global_rows();
  }
  /// Epochs whose samples were all taken once `step` is done.
  std::uint32_t epochs_done(Step step) const noexcept {
    return static_cast<std::uint32_t>(samples_before(next(step)) / train_samples);
  }
  bool is_last(Step step) const noexcept { return step.value + 1 >= steps; }
  /// Whether an epoch's last sample is among those of `step`.
  bool ends_epoch(Step step) const noexcept { return epochs_done(step) > epochs_before(step); }
  /// Whether a line is reported after `step`: an epoch ends, or the run does.
  bool reports(Step step) const noexcept { return ends_epoch(step) || is_last(step); }
  /// The number of the line that `step` ends, from 1; a run that ends inside an epoch counts it.
  std::uint32_t epoch_number(Step step) const noexcept {
    const bool inside = samples_before(next(step)) % train_samples != 0;
    const bool ends = epochs_done(step) > epochs_before(step);
    return epochs_done(step) + (inside && !ends ? 1 : 0);
  }
  /// Whether the test set is gone through after `step`.
  bool evaluates(Step step) const noexcept {
    return evaluate_every != 0 && test_samples != 0 && reports(step) &&
           (epoch_number(step) % evaluate_every == 0 || is_last(step));
  }
  /// The part [first, first + count) of the test set that `rank` evaluates.
  std::uint64_t test_first(Rank rank) const noexcept { return test_samples * rank.value / ranks; }
  std::uint64_t test_count(Rank rank) const noexcept { return test_first({rank.value + 1}) - test_first(rank); }
  /// Batches of `rows` that `rank`'s part makes, at least one, so that every rank has something to say.
  std::uint64_t test_batches(Rank rank) const noexcept {
    const std::uint64_t batches = (test_count(rank) + rows - 1) / rows;
    return batches == 0 ? 1 : batches;
  }

 private:
  std::uint32_t epochs_before(Step step) const noexcept {
    return static_cast<std::uint32_t>(samples_before(step) / train_samples);
  }
};

}  // namespace troupe
