#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>

#include "runtime/memory/arena.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe {

/// Makes one point out of several: a timeline of this process whose n-th value is reached when all points of the first
/// n joins are reached. The first poison of any of them poisons it. Threads: one caller of join(); the rest any.
class PointJoin {
 public:
  explicit PointJoin(AddressSpace& space);
  ~PointJoin();
  PointJoin(const PointJoin&) = delete;
  PointJoin& operator=(const PointJoin&) = delete;

  /// The timelines of `points` outlive this object, or at least call all their wakers before it ends.
  Point join(std::span<const Point> points);

 private:
  /// The waker of all points of one join.
  struct Countdown;
  void reached(Countdown& countdown, const Status& status) noexcept;

  AddressSpace& space_;
  const PrivateTimeline own_line_;
  Timeline& line_;
  std::mutex mutex_;                  // guards what follows
  std::deque<Countdown> countdowns_;  // as many as were ever in use at once
  std::deque<Countdown*> in_flight_;  // in use, in the order of the calls
  std::deque<Countdown*> free_;
  std::uint64_t joins_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace troupe
