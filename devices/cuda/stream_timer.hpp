#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "devices/cuda/gpu.hpp"
#include "devices/cuda/gpu_clock.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/compute/work_times.hpp"

namespace troupe::cuda {

/// What a stream does between two times that it notes.
struct TimedWork {
  /// `between`: from a wait or a signal to the next one, with nothing between them. `gap`: nothing was launched, or its
  /// launch was under way.
  enum class Role : std::uint8_t { work, wait, between, gap };
  Role role = Role::between;
  WorkKind kind = WorkKind::exchange;
  bool begins_batch = false;
  const char* phase = "signal";  // for the trace; a string literal
  WorkLabel label{};
};

/// Decides while work is enqueued where its stream notes a time: where work of another kind begins, and where the
/// stream may have run out of work. Waits and signals note times themselves, so most borders cost no kernel.
class WorkBorders {
 public:
  /// Every piece of work gets borders of its own, for a trace.
  void see_all() noexcept { sees_all_ = true; }
  /// `next` begins. With a value: a time must be noted before it, which ends that.
  std::optional<TimedWork> begin(const TimedWork& next);
  /// A wait begins, and notes the time: what that ends. It notes the time at its end, too.
  TimedWork end_at_wait();
  /// The same for a signal, whose own label is `label`.
  TimedWork end_at_signal(const WorkLabel& label);
  /// With a value: work is open, and a time must be noted that ends it.
  std::optional<TimedWork> end_open() { return std::exchange(open_, {}); }
  /// Nothing more may be enqueued for a while. No work is open.
  void rest() noexcept { rests_ = true; }
  bool rests() const noexcept { return rests_; }

 private:
  bool needs_border(const TimedWork& next) const noexcept;

  std::optional<TimedWork> open_;
  bool rests_ = true;
  bool sees_all_ = false;
};

/// Reads the times that a stream notes, and adds up how it spends its time. Nobody waits for the GPU: what it has noted
/// so far is taken when somebody asks. Threads: any.
class StreamTimer {
 public:
  explicit StreamTimer(std::shared_ptr<const Gpu> gpu);

  /// Where the stream's kernels write times: an argument of theirs.
  std::uint64_t* ring() const noexcept { return ring_.as<std::uint64_t>(); }
  /// `row` outlives the timer. Before the first work.
  void trace(TraceRow& row) { row_ = &row; }
  /// What the next times end that the stream notes, in their order; before their kernels are launched.
  void expect(std::span<const TimedWork> works);
  /// Takes the times that are there.
  void take() noexcept;
  /// Of all times that are there.
  StreamTimes times() noexcept;

 private:
  struct Expected {
    TimedWork work;
    Clock::time_point launched;
  };
  void take_one(const Expected& ended, std::uint64_t word) noexcept;
  void add(const TimedWork& work, std::chrono::nanoseconds span) noexcept;

  const PinnedMemory ring_;
  TraceRow* row_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::deque<Expected> expected_;
  std::uint32_t taken_ = 0;  // times, of those that the stream has written
  bool has_last_ = false;    // false: the time before the next one is not known
  std::chrono::nanoseconds last_{};
  Clock::time_point last_on_host_{};
  GpuClock clock_;
  WorkTimes spent_;
};

}  // namespace troupe::cuda
