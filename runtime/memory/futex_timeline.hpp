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

/// Somebody who notices what other processes do to a line, and then calls its run_due().
class LineWatch {
 public:
  /// From now on `line` is watched. Throws Error{environment} when no thread can be had.
  virtual void watch(FutexTimeline& line) = 0;

 protected:
  ~LineWatch() = default;
};

/// A timeline over a TimelineWord. A signal is one addition to the word, plus a system call when somebody sleeps; a
/// wait that is over already is one load. Signals add and poison sets a bit, so neither takes the other back, whichever
/// process was first.
///
/// Who is told how: a sleeper counts itself in `sleepers`, notes `change`, looks at the value once more and sleeps on
/// `change`; a signaller raises the value and then looks at `sleepers`. Both orders are sequentially consistent, so one
/// of the two sees the other. A signaller that dies between the two leaves sleepers that poison, which never looks at
/// `sleepers`, wakes. Wakers of this object count as one sleeper, on whose behalf the watch sleeps; signals through
/// this object run them directly and do not disturb the watch.
class FutexTimeline final : public Timeline {
 public:
  /// `word` outlives the line, as do `watch` (null: only this process knows the word) and `spin` (how long waits poll).
  FutexTimeline(TimelineId id, TimelineWord& word, LineWatch* watch,
                const std::atomic<std::chrono::nanoseconds>& spin) noexcept
      : id_(id), word_(word), watch_(watch), spin_(spin) {}
  /// Wakers that are left are told Code::aborted. The watch has ended, or never knew the line.
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

  /// Tells every waker whose point is reached or poisoned. Any thread.
  void run_due() noexcept;
  /// Whether wakers are registered.
  bool has_wakers() const noexcept { return next_.load(std::memory_order_seq_cst) != kNone; }
  /// What the watch compares and sleeps on.
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
  std::once_flag watched_;
  std::mutex mutex_;                        // guards entries_ and counted_
  std::vector<Entry> entries_;              // latest point first, of equal ones the youngest
  bool counted_ = false;                    // whether word_.sleepers has one for entries_
  std::atomic<std::uint64_t> next_{kNone};  // the earliest point in entries_
};

}  // namespace troupe
