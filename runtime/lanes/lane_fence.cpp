#include "runtime/lanes/lane_fence.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {
namespace {

/// Owns itself until it has run, because the thread that waits for it may give up earlier.
class Fence final : public LaneTask {
 public:
  void run() noexcept override {
    const auto keep = std::move(self);
    const std::lock_guard lock(mutex);
    passed = true;
    changed.notify_all();
  }

  std::shared_ptr<Fence> self;
  std::mutex mutex;  // guards passed
  std::condition_variable changed;
  bool passed = false;
};

}  // namespace

bool pass(Blocking&, LaneLoop& lane, Deadline deadline) {
  const auto fence = std::make_shared<Fence>();
  fence->self = fence;
  if (!lane.post(*fence)) {
    fence->self.reset();
    return true;
  }
  std::unique_lock lock(fence->mutex);
  return fence->changed.wait_until(lock, deadline.at(), [&] { return fence->passed; });
}

}  // namespace troupe
