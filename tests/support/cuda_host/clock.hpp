#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cuda::host {

/// A sequence of work whose parts follow each other: a stream, a chain of nodes of a graph, or the CPU. All threads of
/// the CPU are one lane (kCpu): what orders them among themselves is not seen here, and is the thread sanitizer's.
using Lane = std::uint32_t;
inline constexpr Lane kCpu = 0;

/// One piece of work: the tick that its lane had then.
struct Moment {
  Lane lane = kCpu;
  std::uint64_t tick = 0;
};

/// A vector clock: for each lane, how far of it has happened before. Lanes are numbered and never used again.
class Clock {
 public:
  bool sees(Moment moment) const noexcept { return moment.lane < ticks_.size() && ticks_[moment.lane] >= moment.tick; }

  void join(const Clock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
  /// Joins the clock of work that a stream, an event or a graph puts before this. Behind a failure there, this is
  /// behind one, too. Words and the CPU pass on no failure: whoever has seen one in a word ends its own stream.
  void follow(const Clock& other) {
    join(other);
    is_behind_failure_ = is_behind_failure_ || other.is_behind_failure_;
  }
  /// A kernel has found that its stream has failed, so kernels behind it do nothing, waits included.
  void fail() noexcept { is_behind_failure_ = true; }
  bool is_behind_failure() const noexcept { return is_behind_failure_; }
  /// Begins the next piece of work of `lane`.
  Moment tick(Lane lane) {
    if (ticks_.size() <= lane) ticks_.resize(lane + 1);
    return {lane, ++ticks_[lane]};
  }

 private:
  std::vector<std::uint64_t> ticks_;
  bool is_behind_failure_ = false;
};

}  // namespace troupe::cuda::host
