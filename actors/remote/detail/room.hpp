#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "runtime/clock.hpp"

namespace troupe::remote {

/// How many messages to one peer wait in this process, and a place to wait until they are fewer. Threads: any.
class Room {
 public:
  /// Full with `limit` messages; waits for room end after `patience`.
  Room(std::uint32_t limit, std::chrono::milliseconds patience) noexcept : limit_(limit), patience_(patience) {}

  void enter() noexcept { count_.fetch_add(1); }
  void leave(std::uint32_t messages = 1) noexcept {
    const std::uint32_t left = count_.fetch_sub(messages) - messages;
    if (waiters_.load() == 0 || left > limit_ / 2) return;
    const std::scoped_lock hold(mutex_);
    fewer_.notify_all();
  }
  bool full() const noexcept { return count_.load(std::memory_order_relaxed) >= limit_; }
  std::uint32_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  std::chrono::milliseconds patience() const noexcept { return patience_; }
  /// Nobody waits any more: the peer is gone, or this process's part has ended.
  void open() noexcept {
    const std::scoped_lock hold(mutex_);
    open_ = true;
    fewer_.notify_all();
  }
  /// Waits until it is half empty; false when patience ended first.
  bool wait() {
    waiters_.fetch_add(1);
    std::unique_lock hold(mutex_);
    const Deadline deadline = Deadline::after(patience_);
    const bool fewer = fewer_.wait_until(hold, deadline.at(), [&] { return open_ || count_.load() <= limit_ / 2; });
    waiters_.fetch_sub(1);
    return fewer;
  }
  /// Counts a message that was turned away; true when the engine is to be told, which then takes the number.
  bool turn_away() noexcept { return turned_away_.fetch_add(1) == 0; }
  std::uint64_t take_turned_away() noexcept { return turned_away_.exchange(0); }

 private:
  const std::uint32_t limit_;
  const std::chrono::milliseconds patience_;
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<std::uint64_t> turned_away_{0};
  std::mutex mutex_;  // guards open_ and the sleep
  std::condition_variable fewer_;
  bool open_ = false;
};

}  // namespace troupe::remote
