#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/base/clock.hpp"

namespace troupe::detail {

/// How long a lane polls before it sleeps, learnt from how long it was idle: polling is worth its core only where the
/// next thing comes soon.
class SpinTime {
 public:
  /// Fixed at `least` unless `most` is larger.
  SpinTime(std::chrono::nanoseconds least, std::chrono::nanoseconds most) noexcept
      : least_(least), most_(std::max(least, most)), span_(least) {}
  /// Whether the lane ever polls.
  bool any() const noexcept { return most_.count() > 0; }
  bool adapts() const noexcept { return most_ > least_; }
  std::chrono::nanoseconds span() const noexcept { return span_; }
  /// Something came after `idle` without anything, spent polling and, at the end, maybe asleep.
  void came_after(Clock::duration idle) noexcept {
    if (!adapts()) return;
    span_ = idle <= most_ ? std::clamp(2 * span_, std::min(kFirst, most_), most_) : std::max(span_ / 2, least_);
  }

 private:
  static constexpr std::chrono::nanoseconds kFirst{1000};  // what doubling begins with after 0

  const std::chrono::nanoseconds least_;
  const std::chrono::nanoseconds most_;
  std::chrono::nanoseconds span_;
};

}  // namespace troupe::detail
