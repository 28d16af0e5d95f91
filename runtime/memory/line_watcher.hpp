#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/memory/futex_timeline.hpp"

namespace troupe {

/// One thread that sleeps on up to kMaxLines timelines at once and calls the wakers whose points another process
/// reached. Without futex_waitv (kernels before 5.16, strict seccomp filters) it checks every millisecond.
class LineWatcher {
 public:
  static constexpr std::size_t kMaxLines = 127;  // the kernel's 128 less the doorbell

  explicit LineWatcher(bool has_waitv);
  /// Ends and joins the thread; wakers stay registered with their timelines.
  ~LineWatcher();
  LineWatcher(const LineWatcher&) = delete;
  LineWatcher& operator=(const LineWatcher&) = delete;

  /// False: no room.
  bool add(FutexTimeline& line);
  /// Returns when the thread no longer uses any of `lines`. Must not be called from a waker.
  void forget(Blocking& blocking, std::span<FutexTimeline* const> lines);

 private:
  void run();
  void ring() noexcept;

  std::mutex mutex_;  // guards what follows
  std::vector<FutexTimeline*> lines_;
  std::uint64_t forgotten_ = 0;       // number of calls of forget()
  std::uint64_t seen_forgotten_ = 0;  // how many of these calls the thread has seen
  std::condition_variable seen_;
  std::atomic<std::uint32_t> doorbell_{0};  // counts changes of lines_, and the end
  std::atomic<bool> stop_{false};
  bool has_waitv_;  // used only by the thread
  std::thread thread_;
};

/// As many watchers as the timelines need; the first starts with the first timeline.
class LineWatchers final : public LineWatch {
 public:
  explicit LineWatchers(bool has_waitv = true) : has_waitv_(has_waitv) {}
  void watch(FutexTimeline& line) override;
  /// The CPUs of threads that start from now on; empty: those of the thread that first waits for a timeline.
  void keep_on(std::vector<std::uint32_t> cpus);
  /// Returns when no watcher uses any of `lines` any more. Must not be called from a waker.
  void forget(Blocking& blocking, std::span<FutexTimeline* const> lines);

 private:
  const bool has_waitv_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::uint32_t> cpus_;
  std::vector<std::unique_ptr<LineWatcher>> watchers_;
};

}  // namespace troupe
