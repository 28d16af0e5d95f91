#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/lanes/lane_loop.hpp"

namespace troupe::remote {

/// The way to the control lane for those that may outlive it: proxies, handles to tensors, watchers of actors. Once
/// closed, nobody touches the lane any more. Threads: any.
class Gate {
 public:
  explicit Gate(LaneLoop& control) noexcept : control_(control) {}

  /// False: closed, or the lane has stopped; the task was not taken.
  bool post(LaneTask& task) noexcept {
    const bool open = (word_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0;
    const bool taken = open && control_.post(task);
    word_.fetch_sub(1, std::memory_order_release);
    return taken;
  }

  /// Calls `work` on the control lane's thread, soon and once; false: never.
  template <class Work>
  bool run(Work work) {
    auto job = std::make_unique<Job<Work>>(std::move(work));
    if (!post(*job)) return false;
    job.release();  // deletes itself
    return true;
  }

  /// Returns when nobody is inside.
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
  std::atomic<unsigned> word_{0};  // those inside, and kClosed
};

}  // namespace troupe::remote
