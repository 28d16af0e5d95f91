#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/lanes/lane_loop.hpp"

namespace troupe::remote {

/// Access to the control lane for objects that may outlive it: proxies, handles of tensors, functions attached to
/// actors. After close() no thread uses the lane through it. Threads: any.
class LaneAccess {
 public:
  explicit LaneAccess(LaneLoop& control) noexcept : control_(control) {}

  /// False: it is closed, or the lane has stopped; the task was not taken.
  bool post(LaneTask& task) noexcept {
    const bool open = (word_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0;
    const bool taken = open && control_.post(task);
    word_.fetch_sub(1, std::memory_order_release);
    return taken;
  }

  /// Calls `work` on the control lane's thread, soon and once. False: it will not be called.
  template <class Work>
  bool run(Work work) {
    auto job = std::make_unique<Job<Work>>(std::move(work));
    if (!post(*job)) return false;
    job.release();  // it deletes itself
    return true;
  }

  /// Returns when no thread is using the lane through it.
  void close() noexcept {
    word_.fetch_or(kClosed, std::memory_order_acq_rel);
    while ((word_.load(std::memory_order_acquire) & ~kClosed) != 0) std::this_thread::yield();
  }

 private:
  static constexpr unsigned kClosed = 1u << 31;

  template <class Work>
  class Job final : public LaneTask {
   public:
    explicit Job(Work work) : work_(std::move(work)) {}
    void run() noexcept override {
      const std::unique_ptr<Job> self(this);
      work_();
    }

   private:
    Work work_;
  };

  LaneLoop& control_;
  std::atomic<unsigned> word_{0};  // the number of threads inside, and kClosed
};

}  // namespace troupe::remote
