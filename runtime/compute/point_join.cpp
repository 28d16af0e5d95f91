#include "runtime/compute/point_join.hpp"

namespace troupe {

struct PointJoin::Countdown final : Waker {
  explicit Countdown(PointJoin& its_owner) : owner(its_owner) {}
  void reached(Point, Status status) noexcept override { owner.reached(*this, status); }

  PointJoin& owner;
  std::size_t left = 0;  // points not yet reached
};

PointJoin::PointJoin(AddressSpace& space) : space_(space), own_line_(space), line_(own_line_.line()) {}

PointJoin::~PointJoin() = default;

/// The count is complete and the join is queued before the first wake(): wake() calls reached() at once if the point is
/// already reached, and a smaller count would then end the join too early. The mutex is not held during wake(), because
/// reached() takes it.
Point PointJoin::join(std::span<const Point> points) {
  Countdown* countdown = nullptr;
  Point joined{line_.id(), 0};
  {
    const std::lock_guard lock{mutex_};
    if (free_.empty()) free_.push_back(&countdowns_.emplace_back(*this));
    countdown = free_.front();
    free_.pop_front();
    countdown->left = points.size();
    in_flight_.push_back(countdown);
    joined.value = ++joins_;
  }
  for (const Point& point : points) space_.timeline(point.line).wake(point.value, *countdown);
  return joined;
}

/// The timeline is signalled under the mutex, because a later join may be complete before an earlier one has seen its
/// last point.
void PointJoin::reached(Countdown& countdown, const Status& status) noexcept {
  const std::lock_guard lock{mutex_};
  if (!status.ok()) line_.poison(status);
  --countdown.left;
  const std::uint64_t before = ended_;
  while (!in_flight_.empty() && in_flight_.front()->left == 0) {
    free_.push_back(in_flight_.front());
    in_flight_.pop_front();
    ++ended_;
  }
  if (ended_ != before && line_.status().ok()) line_.signal(ended_);
}

}  // namespace troupe
