#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/base/clock.hpp"

namespace troupe::detail {

/// How long a lane polls before it sleeps. The time is adapted to how long the lane was idle before: polling is worth
/// its core only if the next event comes soon.
class SpinTime {
 public:
  /// Always `least` unless `most` is larger.
  SpinTime(std::chrono::nanoseconds least, std::chrono::nanoseconds most) noexcept
      : least_(least), most_(std::max(least, most)), span_(least) {}
  /// Whether the lane ever polls.
  bool any() const noexcept { return most_.count() > 0; }
  bool adapts() const noexcept { return most_ > least_; }
  std::chrono::nanoseconds span() const noexcept { return span_; }
  /// Call this when an event came after `idle`, a time of polling and, at the end, perhaps of sleeping.
  void came_after(Clock::duration idle) noexcept {
    if (!adapts()) return;
    span_ = idle <= most_ ? std::clamp(2 * span_, std::min(kFirst, most_), most_) : std::max(span_ / 2, least_);
  }

 private:
  static constexpr std::chrono::nanoseconds kFirst{1000};  // where doubling begins after 0

  const std::chrono::nanoseconds least_;
  const std::chrono::nanoseconds most_;
  std::chrono::nanoseconds span_;
};

}  // namespace troupe::detail
