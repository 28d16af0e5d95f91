#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "runtime/base/clock.hpp"

namespace troupe::cuda {

/// Turns times of a GPU's clock into those of the host's. Each time that a GPU noted lies between the launch of the
/// kernel that noted it and the moment at which the host read it: that bounds the difference of the clocks from both
/// sides, and the closest bounds of all are kept. They widen as they age, since the clocks drift.
class GpuClock {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  /// The GPU's clock showed `gpu` not before `earliest` and not after `latest`.
  void saw(Nanoseconds gpu, Clock::time_point earliest, Clock::time_point latest) noexcept {
    const Nanoseconds least = earliest.time_since_epoch() - gpu, most = latest.time_since_epoch() - gpu;
    const Nanoseconds drift = std::max(gpu - last_, Nanoseconds::zero()) / kDriftsOneIn;
    const bool is_first = most_ < least_;
    least_ = is_first ? least : std::max(least_ - drift, least);
    most_ = is_first ? most : std::min(most_ + drift, most);
    if (most_ < least_) least_ = least, most_ = most;  // they drift faster than was thought
    last_ = gpu;
  }
  /// The middle of the possible range. Call saw() first.
  Clock::time_point host_time(Nanoseconds gpu) const noexcept {
    return Clock::time_point{std::chrono::duration_cast<Clock::duration>(gpu + least_ + (most_ - least_) / 2)};
  }
  /// How far host_time() may be wrong.
  Nanoseconds uncertainty() const noexcept { return (most_ - least_) / 2; }

 private:
  static constexpr int kDriftsOneIn = 10000;  // nanoseconds: clocks of this kind differ by less
  Nanoseconds least_{1}, most_{0};            // the host's clock less the GPU's; least > most: nothing was seen
  Nanoseconds last_{0};
};

}  // namespace troupe::cuda
