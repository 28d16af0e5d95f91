#pragma once

// The room report: what a run tells people, as values (report.hpp), what an app adds to a line, and when figures are
// enough to stop. It writes nothing: actors and programs do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/compute/stream_times.hpp"
#include "runtime/data/shares.hpp"

namespace troupe {

/// A policy that began.
struct SwitchReport {
  std::uint64_t step = 0;     // its first
  std::uint64_t samples = 0;  // of all ranks, taken before
  std::string policy;         // as a plan tells it
  std::string reason;
  friend bool operator==(const SwitchReport&, const SwitchReport&) = default;
};

/// What an app reported under a name for a line: the mean, which is finite unless a value that it reported was not.
struct ReportedValue {
  std::string name;
  double value = 0;
  friend bool operator==(const ReportedValue&, const ReportedValue&) = default;
};

/// One epoch's line, over all ranks.
struct EpochReport {
  std::uint32_t epoch = 0;          // from 1
  std::uint64_t steps = 0;          // so far
  double loss = 0;                  // mean over the epoch's training samples
  double accuracy = 0;              // as they were seen
  std::optional<double> test_loss;  // absent when this epoch was not evaluated
  std::optional<double> test_accuracy;
  double elapsed_s = 0;          // since the first step began
  std::uint64_t samples = 0;     // trained in this run, up to the line's last step
  double train_s = 0;            // in training until then, evaluation not counted
  StreamTimes times;             // rank 0's, since the run began; all zero: its device does not measure
  double rate = 0;               // the learning rate of the line's last step; 0: not known
  std::uint64_t skipped = 0;     // steps of the line that changed nothing, as their gradients were not finite
  std::vector<RankShare> ranks;  // in the last steps before it, by rank; empty: one rank, or nothing measured yet
  /// Policies that began in its steps.
  std::vector<SwitchReport> switches{};
  std::vector<ReportedValue> values{};  // that the app reported, by name
  double steps_per_s = 0;               // of the line's steps that this run took, evaluation not counted; 0: not known
  double part = 1;  // of the epoch's samples that were taken: below 1 when the run ends inside the epoch
  /// Epochs in all, a part of one counted as such.
  double epochs() const noexcept { return epoch - 1 + part; }
};

/// Some steps of an epoch, over all ranks: a line inside an epoch, where a format of the console has them.
struct StepsReport {
  std::uint32_t epoch = 0;  // from 1
  std::uint64_t first = 0;  // step of the line in work, from 1; after a resume counted from there
  std::uint64_t last = 0;
  std::uint64_t samples = 0;
  double loss = 0;  // mean over the samples
  double accuracy = 0;
  double samples_per_s = 0;  // evaluation not counted; 0: not known
};

/// How far a run is; sent at most a few times a second.
struct RunProgress {
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  double samples_per_s = 0;  // over the last moments
  double loss = 0;           // of the last step
  double elapsed_s = 0;      // since the first step began
  double train_s = 0;        // evaluation not counted
  StreamTimes times;         // rank 0's, as in an EpochReport
};

/// What a run amounted to.
struct RunTotal {
  std::uint64_t steps = 0;    // committed
  std::uint64_t samples = 0;  // trained, all ranks
  double train_s = 0;         // time in training, evaluation not counted
  double elapsed_s = 0;       // since the first step began
  StreamTimes times;          // rank 0's, as in an EpochReport
};

}  // namespace troupe
