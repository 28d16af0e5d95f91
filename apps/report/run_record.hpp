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

/// Where a run stood at one moment, counted from its first step.
struct TracePoint {
  double elapsed_s = 0;
  double train_s = 0;  // evaluation not counted
  std::uint64_t samples = 0;
  StreamTimes times;  // rank 0's
};

/// How a run went on over time, in bounded memory: when there are too many points every second one goes, and what was
/// measured between two neighbours is then measured over the longer time between those that are left.
class RunTrace {
 public:
  static constexpr std::size_t kMostPoints = 512;
  /// Takes a point that is later than the last one, with no fewer samples; others are nothing new.
  void add(const TracePoint& point);
  /// In the order of time; the first is the beginning, all zero.
  const std::vector<TracePoint>& points() const noexcept { return points_; }

 private:
  std::vector<TracePoint> points_{TracePoint{}};
};

/// The most epochs that a page is made from.
inline constexpr std::size_t kMostEpochs = 4096;

/// Adds an epoch to those of a record, which stay in bounded memory: when there are too many, of every two neighbours
/// the one with the higher accuracy in evaluation stays, else the later one, with the policies that began in either.
/// Only the newest keeps what was measured of each rank.
void add_epoch(std::vector<EpochReport>& epochs, const EpochReport& epoch);

enum class RunState : std::uint8_t { running, finished, stopped, failed };

/// All that the page of a run shows.
struct RunRecord {
  RunState state = RunState::running;
  std::string reason;  // why it failed
  std::chrono::system_clock::time_point begun;
  std::chrono::system_clock::time_point written;
  std::string configuration;  // the file
  std::vector<EffectiveValue> settings;
  std::optional<Plan> plan;  // absent: it failed before there was one
  std::string device;
  std::string data;
  std::vector<EpochReport> epochs;
  RunTrace trace;
  RunProgress last;                // the newest progress
  std::vector<std::string> notes;  // the first ones, and how many more
};

}  // namespace troupe::report
