#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class TraceRow;

/// How one lane's thread waits, and where it runs.
struct LaneOptions {
  /// How long at least to poll before sleeping if nothing happens; 0: sleep at once (for fewer cores than threads).
  std::chrono::nanoseconds spin{0};
  /// If above `spin`, the time is adapted between the two: it doubles if an event came within `spin_most`, even while
  /// the thread slept, and halves if none did. Otherwise the time is always `spin`.
  std::chrono::nanoseconds spin_most{0};
  /// CPUs to which the thread is pinned; no other busy thread should be pinned there. Empty: all CPUs of the process.
  std::vector<std::uint32_t> cpus;
  TraceRow* trace = nullptr;  // records when the lane works; outlives the lane. Null: no trace
};

/// The options of a process's two lanes.
struct LanePair {
  LaneOptions control;
  LaneOptions bulk;
};

/// The options for lanes with CPUs of their own: the control lane polls on its CPU, up to 200 us at a time, and drives
/// the bulk lane too; the bulk lane never polls. Empty `control`: neither polls.
LanePair lanes_on(std::span<const std::uint32_t> control, std::span<const std::uint32_t> bulk);

/// The same for a process that may use `cpus` (one per core, since two of a core slow each other) and keeps `threads`
/// of them busy with other work. If two or more are left, the control lane gets the last CPU and the bulk lane the one
/// before it; if one is left, the control lane gets it; if none, both lanes run on any CPU and sleep at once.
LanePair lane_options_for(std::span<const std::uint32_t> cpus, std::uint32_t threads);

}  // namespace troupe
