#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// Called once when a point is reached or poisoned. It may only post a message or set a flag: it must not block, throw,
/// allocate more than that message, or call back into its caller.
class Waker {
 public:
  virtual void reached(Point point, Status status) noexcept = 0;

 protected:
  ~Waker() = default;  // never deleted through this interface; the owner keeps it alive until reached() has run
};

/// A counter that only grows and says how far a sequence of work has come; it lies in memory that every process of the
/// node can map. Implementations: futex word (CPU), stream memory operations (CUDA), logical clock (fake). Threads: any
/// thread may call anything; signal() has one caller at a time, the owner of the sequence.
class Timeline {
 public:
  /// A value above all points: word() is at least this once the timeline is poisoned.
  static constexpr std::uint64_t kPoisonedWord = std::uint64_t{1} << 63;

  virtual ~Timeline() = default;
  virtual TimelineId id() const noexcept = 0;
  /// The last value signalled; everything written before that signal is visible to the caller.
  virtual std::uint64_t value() const noexcept = 0;
  /// The value that a waiter compares which can only compare 64 bits, such as a GPU: value(), plus kPoisonedWord once
  /// the timeline is poisoned, so that every such wait ends. value() and status() then say whether its point was
  /// reached: a point above value() was not.
  virtual std::uint64_t word() const noexcept = 0;
  /// Raises the value to `to`, which must be larger than value(). Wakes all waits for values up to `to`.
  virtual void signal(std::uint64_t to) noexcept = 0;
  /// Raises the value by `count`, for timelines that several threads raise: any threads, of any process, at the same
  /// time. Such a timeline must never be signalled.
  virtual void add(std::uint64_t count) noexcept = 0;
  /// Ends the sequence: every wait above value(), now and later, reports `why`. Idempotent: the first reason is kept.
  virtual void poison(const Status& why) noexcept = 0;
  /// The reason of the poison, or ok.
  virtual Status status() const noexcept = 0;
  /// Calls waker.reached() exactly once, possibly before returning: when value() >= at, or with the poison's reason.
  virtual void wake(std::uint64_t at, Waker& waker) = 0;
  /// Waits until value() >= at (ok), until the poison, or until the deadline (timeout, naming `what`). Polls briefly if
  /// the process has free cores, then sleeps.
  virtual Status wait(Blocking& blocking, std::uint64_t at, Deadline deadline, std::string_view what) = 0;
};

/// The form of a futex timeline in an arena: 128 bytes, so that two timelines never share a cache line, nor the pair of
/// lines that the prefetcher loads. A new timeline is zero bytes except for the mark, by which an arena distinguishes
/// its timelines from other bytes (Arena::has_timeline).
struct alignas(128) TimelineWord {
  static constexpr std::uint16_t kMark = 0x6c54;

  std::atomic<std::uint64_t> value;     // Timeline::word()
  std::atomic<std::uint32_t> change;    // counts signals and poison: what sleepers' futex calls compare
  std::atomic<std::uint32_t> sleepers;  // threads that sleep in the kernel; if 0, no system call is needed
  std::atomic<std::uint32_t> poisoned;  // 0 no, 1 being written, 2 yes
  std::uint16_t poison_code;
  std::uint16_t mark;
  char poison_text[104];  // zero-terminated, truncated if too long
};
static_assert(sizeof(TimelineWord) == 128);

}  // namespace troupe
