#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "runtime/memory/timeline.hpp"

namespace troupe {

class FutexTimeline;

/// Notices when other processes change a timeline, and then calls its run_due().
class LineWatch {
 public:
  /// Watches `line` from now on. Throws Error{environment} if no thread can be started.
  virtual void watch(FutexTimeline& line) = 0;

 protected:
  ~LineWatch() = default;
};

/// A timeline over a TimelineWord. A signal is one addition to the word, plus a system call if a thread sleeps; a wait
/// whose point is already reached is one load. A signal adds and a poison sets a bit, so neither overwrites the other,
/// whichever process is first.
///
/// How waiting threads are woken: a sleeper counts itself in `sleepers`, reads `change`, checks the value once more and
/// sleeps on `change`; a signaller raises the value and then reads `sleepers`. Both orders are sequentially consistent,
/// so at least one of the two sees the other. A signaller that dies between its two operations leaves threads asleep;
/// poison() wakes them, because it never reads `sleepers`. All wakers of this object count as one sleeper, and the
/// watch sleeps for them; signals through this object run the wakers directly and do not wake the watch.
class FutexTimeline final : public Timeline {
 public:
  /// `word`, `watch` (null: only this process knows the word) and `spin` (how long waits poll) outlive the timeline.
  FutexTimeline(TimelineId id, TimelineWord& word, LineWatch* watch,
                const std::atomic<std::chrono::nanoseconds>& spin) noexcept
      : id_(id), word_(word), watch_(watch), spin_(spin) {}
  /// Calls the remaining wakers with Code::aborted. By then the watch no longer uses the timeline, or never knew it.
  ~FutexTimeline() override;
  FutexTimeline(const FutexTimeline&) = delete;
  FutexTimeline& operator=(const FutexTimeline&) = delete;

  TimelineId id() const noexcept override { return id_; }
  std::uint64_t value() const noexcept override { return word() & ~kPoisonedWord; }
  std::uint64_t word() const noexcept override { return word_.value.load(std::memory_order_acquire); }
  void signal(std::uint64_t to) noexcept override;
  void add(std::uint64_t count) noexcept override;
  void poison(const Status& why) noexcept override;
  Status status() const noexcept override;
  void wake(std::uint64_t at, Waker& waker) override;
  Status wait(Blocking& blocking, std::uint64_t at, Deadline deadline, std::string_view what) override;

  /// Calls every waker whose point is reached or poisoned. Any thread.
  void run_due() noexcept;
  /// Whether wakers are registered.
  bool has_wakers() const noexcept { return next_.load(std::memory_order_seq_cst) != kNone; }
  /// The word that the watch compares and sleeps on.
  const std::atomic<std::uint32_t>& change() const noexcept { return word_.change; }

 private:
  struct Entry {
    std::uint64_t at;
    Waker* waker;
  };
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  void wake_sleepers() noexcept;
  void enter(std::uint64_t at, Waker& waker);
  void note_next() noexcept;
  bool poll(std::uint64_t at) const noexcept;
  bool sleep(std::uint64_t at, Deadline deadline) noexcept;

  const TimelineId id_;
  TimelineWord& word_;
  LineWatch* const watch_;
  const std::atomic<std::chrono::nanoseconds>& spin_;
  Status whole_;  // the reason of a poison through this object, of which the word may have only the beginning
  std::once_flag watched_;
  std::mutex mutex_;                        // guards entries_ and counted_
  std::vector<Entry> entries_;              // latest point first; of equal points the newest entry first
  bool counted_ = false;                    // whether word_.sleepers includes one for entries_
  std::atomic<std::uint64_t> next_{kNone};  // the earliest point in entries_
};

}  // namespace troupe
