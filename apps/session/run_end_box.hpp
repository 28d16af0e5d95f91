#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "actors/membership_actor.hpp"
#include "runtime/base/blocking.hpp"

namespace troupe {

/// Passes the end of a run from Membership's thread to the thread that waits.
class RunEndBox {
 public:
  void put(const RunEnd& end) {
    const std::lock_guard lock(mutex_);
    if (!end_) end_ = end;  // the first end has the reason; later ones are consequences
    changed_.notify_all();
  }
  RunEnd take(Blocking&) {
    std::unique_lock lock(mutex_);
    // No deadline: the start, every exchange and the end have Membership's deadlines.
    changed_.wait(lock, [&] { return end_.has_value(); });
    return *end_;
  }

 private:
  std::mutex mutex_;  // guards end_
  std::condition_variable changed_;
  std::optional<RunEnd> end_;
};

}  // namespace troupe
