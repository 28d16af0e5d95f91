#include "apps/report/run_record.hpp"

namespace troupe::report {

void RunTrace::add(const TracePoint& point) {
  if (point.elapsed_s <= points_.back().elapsed_s || point.samples < points_.back().samples) return;
  if (points_.size() == kMostPoints) {
    for (std::size_t i = 1; 2 * i < kMostPoints; ++i) points_[i] = points_[2 * i];
    points_.resize(kMostPoints / 2);
  }
  points_.push_back(point);
}

}  // namespace troupe::report
