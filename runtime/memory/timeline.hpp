#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace troupe {

/// Told once when a point is reached or poisoned. It may only hand the news on (post a message, set a flag): it
/// must not block, throw, allocate more than that message, or call back into what called it.
class Waker {
 public:
  virtual void reached(Point point, Status status) noexcept = 0;

 protected:
  ~Waker() = default;  // never deleted through this interface; the owner keeps it alive until reached() has run
};

/// A counter that only grows and says how far some sequence of work has come; it lives in memory that every process
/// of the node can map. Implementations: futex word (CPU), stream memory operations (CUDA), logical clock (fake).
/// Threads: any thread may call anything; signal() has one caller at a time, the sequence's owner.
class Timeline {
 public:
  /// Above all points: what word() is at least once the line is poisoned.
  static constexpr std::uint64_t kPoisonedWord = std::uint64_t{1} << 63;

  virtual ~Timeline() = default;
  virtual TimelineId id() const noexcept = 0;
  /// The last value signalled; everything written before that signal is visible to the caller.
  virtual std::uint64_t value() const noexcept = 0;
  /// What a waiter sees that can only compare 64 bits, as a GPU does: value(), and once the line is poisoned
  /// kPoisonedWord more. So every such wait ends. Whether its point was reached value() and status() say: a point above
  /// value() was not.
  virtual std::uint64_t word() const noexcept = 0;
  /// Raises the value to `to`, which must be larger than value(). Wakes everyone waiting at or below it.
  virtual void signal(std::uint64_t to) noexcept = 0;
  /// Raises the value by `count`, for lines that several count up: any threads, of any process, at once. No such line
  /// is ever signalled.
  virtual void add(std::uint64_t count) noexcept = 0;
  /// Ends the sequence: every wait, now and later, above value() reports `why`. Idempotent: the first reason stays.
  virtual void poison(const Status& why) noexcept = 0;
  /// The poison, or ok.
  virtual Status status() const noexcept = 0;
  /// Calls waker.reached() exactly once, possibly before returning, when value() >= at, or with the poison.
  virtual void wake(std::uint64_t at, Waker& waker) = 0;
  /// Waits until value() >= at (ok), the poison, or the deadline (timeout, naming `what`). Spins briefly where the
  /// process has cores to spare, then sleeps.
  virtual Status wait(Blocking& blocking, std::uint64_t at, Deadline deadline, std::string_view what) = 0;
};

/// A futex timeline as it lies in an arena, 128 bytes so that two lines never share a cache line (nor its neighbour
/// that the prefetcher brings along). Zero bytes are a fresh line, but for the mark, by which an arena tells its lines
/// from other bytes (Arena::has_timeline).
struct alignas(128) TimelineWord {
  static constexpr std::uint16_t kMark = 0x6c54;

  std::atomic<std::uint64_t> value;     // Timeline::word()
  std::atomic<std::uint32_t> change;    // counts signals and poison: what sleepers' futex calls compare
  std::atomic<std::uint32_t> sleepers;  // threads in the kernel; nobody there, no system call
  std::atomic<std::uint32_t> poisoned;  // 0 no, 1 being written, 2 yes
  std::uint16_t poison_code;
  std::uint16_t mark;
  char poison_text[104];  // zero-terminated, cut where too long
};
static_assert(sizeof(TimelineWord) == 128);

}  // namespace troupe
