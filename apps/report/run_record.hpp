#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/report/report.hpp"

namespace troupe::report {

/// The state of a run at one moment, counted from its first step.
struct TracePoint {
  double elapsed_s = 0;
  double train_s = 0;  // without evaluation
  std::uint64_t samples = 0;
  StreamTimes times;  // of rank 0
};

/// The progress of a run over time, in bounded memory: when there are too many points, every second one is removed, and
/// what was measured between neighbours then belongs to the longer interval between those that remain.
class RunTrace {
 public:
  static constexpr std::size_t kMostPoints = 512;
  /// Adds a point that is later than the last one and has no fewer samples; others are ignored.
  void add(const TracePoint& point);
  /// In the order of time; the first is the beginning, all zero.
  const std::vector<TracePoint>& points() const noexcept { return points_; }

 private:
  std::vector<TracePoint> points_{TracePoint{}};
};

/// The most epochs that a page shows.
inline constexpr std::size_t kMostEpochs = 4096;

/// Adds an epoch to those of a record, in bounded memory: when there are too many, of every two neighbours the one with
/// the higher accuracy in evaluation is kept, otherwise the later one, with the policies that began in either. Only the
/// newest keeps the measurements of each rank, and a generated text.
void add_epoch(std::vector<EpochReport>& epochs, const EpochReport& epoch);

struct RunRecord;
/// The last epoch with a generated text; null: there is none.
const EpochReport* newest_text(const RunRecord& record);

enum class RunState : std::uint8_t { running, finished, stopped, failed };

/// Everything that the page of a run shows.
struct RunRecord {
  RunState state = RunState::running;
  std::string reason;  // why it failed
  std::chrono::system_clock::time_point begun;
  std::chrono::system_clock::time_point written;
  std::string configuration;  // the file's path
  std::vector<EffectiveValue> settings;
  std::optional<Plan> plan;  // absent: it failed before there was one
  std::string device;
  std::string data;
  std::vector<EpochReport> epochs;
  RunTrace trace;
  RunProgress last;                // the newest one
  std::vector<std::string> notes;  // the first ones, and the number of further ones
};

}  // namespace troupe::report
