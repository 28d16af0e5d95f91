#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class TraceRow;

/// How one lane's thread waits, and where it runs.
struct LaneOptions {
  /// How long to poll before sleeping when nothing happens, at least; 0: sleep at once (fewer cores than threads).
  std::chrono::nanoseconds spin{0};
  /// Above `spin`: the time is adapted between the two. It doubles when something came within `spin_most`, asleep or
  /// not, and halves when nothing did. Else the time is `spin`, always.
  std::chrono::nanoseconds spin_most{0};
  /// CPUs that the thread is kept on, which nothing else should be kept busy on; empty: wherever the process may run.
  std::vector<std::uint32_t> cpus;
  TraceRow* trace = nullptr;  // shows when the lane has work; outlives the lane. Null: no trace
};

/// Those of a process's two lanes.
struct LanePair {
  LaneOptions control;
  LaneOptions bulk;
};

/// The choice for lanes with CPUs of their own: the control lane polls on its one, up to 200 us at a time, and drives
/// the bulk lane along; the bulk lane never polls. Empty `control`: neither polls.
LanePair lanes_on(std::span<const std::uint32_t> control, std::span<const std::uint32_t> bulk);

/// The same for a process that may use `cpus` (one for each core: two of one core take from each other) and keeps
/// `threads` of them busy with other work. Two are left: the last is the control lane's, the one before it the bulk
/// lane's; one is left: it is the control lane's; none: both lanes go anywhere and sleep at once.
LanePair lane_options_for(std::span<const std::uint32_t> cpus, std::uint32_t threads);

}  // namespace troupe
