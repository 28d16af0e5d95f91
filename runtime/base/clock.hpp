#pragma once

#include <chrono>

namespace troupe {

/// Monotonic time: changes of the wall clock do not affect it.
using Clock = std::chrono::steady_clock;

/// The latest time at which a wait ends.
class Deadline {
 public:
  static Deadline after(Clock::duration span) noexcept { return Deadline{Clock::now() + span}; }
  Clock::time_point at() const noexcept { return at_; }
  bool passed() const noexcept { return Clock::now() >= at_; }
  /// The time that is left, never negative.
  Clock::duration left() const noexcept {
    const auto now = Clock::now();
    return now < at_ ? at_ - now : Clock::duration::zero();
  }

 private:
  explicit Deadline(Clock::time_point at) noexcept : at_(at) {}
  Clock::time_point at_;
};

}  // namespace troupe
