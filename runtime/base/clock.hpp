#pragma once

#include <chrono>

namespace troupe {

/// Monotonic time: jumps of the wall clock change nothing.
using Clock = std::chrono::steady_clock;

/// A moment by which a wait ends.
class Deadline {
 public:
  static Deadline after(Clock::duration span) noexcept { return Deadline{Clock::now() + span}; }
  Clock::time_point at() const noexcept { return at_; }
  bool passed() const noexcept { return Clock::now() >= at_; }
  /// What is left, never negative.
  Clock::duration left() const noexcept {
    const auto now = Clock::now();
    return now < at_ ? at_ - now : Clock::duration::zero();
  }

 private:
  explicit Deadline(Clock::time_point at) noexcept : at_(at) {}
  Clock::time_point at_;
};

}  // namespace troupe
