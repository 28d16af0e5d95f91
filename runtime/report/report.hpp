#pragma once

// The room report: the results that a run reports to people, as values (report.hpp); values that an app adds to a line;
// when results are good enough to stop. It writes nothing: actors and programs do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/compute/stream_times.hpp"
#include "runtime/data/load_balancer.hpp"

namespace troupe {

/// A policy that took effect.
struct SwitchReport {
  std::uint64_t step = 0;     // the policy's first step
  std::uint64_t samples = 0;  // taken by all ranks before
  std::string policy;         // as in a plan
  std::string reason;
  friend bool operator==(const SwitchReport&, const SwitchReport&) = default;
};

/// What an app reported under a name for a line: the mean, which is finite if all reported values were.
struct ReportedValue {
  std::string name;
  double value = 0;
  friend bool operator==(const ReportedValue&, const ReportedValue&) = default;
};

/// One epoch's line, for all ranks.
struct EpochReport {
  std::uint32_t epoch = 0;          // counted from 1
  std::uint64_t steps = 0;          // so far
  double loss = 0;                  // mean over the epoch's training samples
  double accuracy = 0;              // over the same samples, when they were trained
  bool counted = true;              // false: no sums of all ranks came in it: loss and accuracy are not known
  std::optional<double> test_loss;  // absent if this epoch was not evaluated
  std::optional<double> test_accuracy;
  double elapsed_s = 0;          // since the first step began
  std::uint64_t samples = 0;     // trained in this run, up to the line's last step
  double train_s = 0;            // time in training until then, without evaluations
  StreamTimes times;             // rank 0's, since the run began; all zero: its device does not measure them
  std::optional<double> rate;    // the learning rate of the line's last step; absent: not known
  std::uint64_t skipped = 0;     // steps of the line that changed no parameter, because their gradients were not finite
  double loss_scale = 0;         // of the line's last step, at rank 0; 0: the loss is not scaled
  std::vector<RankShare> ranks;  // in the last steps before it, by rank; empty: one rank, or not measured yet
  /// Policies that took effect in its steps.
  std::vector<SwitchReport> switches{};
  std::vector<ReportedValue> values{};  // that the app reported, by name
  std::string generated_text{};         // after the evaluation, with its prompt; printable(); empty: none
  double steps_per_s = 0;               // of the line's steps in this run, without evaluations; 0: not known
  double part = 1;  // fraction of the epoch's samples that were taken: below 1 if the run ends within the epoch
  /// Number of epochs so far, including fractions.
  double epochs() const noexcept { return epoch - 1 + part; }
  std::optional<double> known_loss() const { return counted ? std::optional{loss} : std::nullopt; }
  std::optional<double> known_accuracy() const { return counted ? std::optional{accuracy} : std::nullopt; }
};

/// Some steps of an epoch, for all ranks: a line within an epoch, if the console's format has such lines.
struct StepsReport {
  std::uint32_t epoch = 0;  // counted from 1
  std::uint64_t first = 0;  // number of the first step within the epoch, from 1 (after a resume, counted from there)
  std::uint64_t last = 0;
  std::uint64_t samples = 0;
  double loss = 0;  // mean over the samples
  double accuracy = 0;
  double samples_per_s = 0;  // without evaluations; 0: not known
};

/// The progress of a run; sent at most a few times per second.
struct RunProgress {
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  double samples_per_s = 0;  // over the last moments
  double loss = 0;           // of the last step
  double elapsed_s = 0;      // since the first step began
  double train_s = 0;        // time in training, without evaluations
  StreamTimes times;         // rank 0's, as in an EpochReport
};

/// The totals of a run.
struct RunTotal {
  std::uint64_t steps = 0;    // committed
  std::uint64_t samples = 0;  // trained, over all ranks
  double train_s = 0;         // time in training, without evaluations
  double elapsed_s = 0;       // since the first step began
  StreamTimes times;          // rank 0's, as in an EpochReport
};

}  // namespace troupe
