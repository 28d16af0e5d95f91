#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "actors/membership_actor.hpp"
#include "runtime/base/blocking.hpp"

namespace troupe {

/// The end of a run, handed from Membership's thread to the one that waits.
class RunEndBox {
 public:
  void put(const RunEnd& end) {
    const std::lock_guard lock(mutex_);
    if (!end_) end_ = end;  // the first tells why; what follows are its consequences
    changed_.notify_all();
  }
  RunEnd take(Blocking&) {
    std::unique_lock lock(mutex_);
    // As long as the run takes: the start, every exchange and the end have deadlines of Membership's.
    changed_.wait(lock, [&] { return end_.has_value(); });
    return *end_;
  }

 private:
  std::mutex mutex_;  // guards end_
  std::condition_variable changed_;
  std::optional<RunEnd> end_;
};

}  // namespace troupe
