#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "actors/remote/remote_actors.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"

namespace troupe::remote {

/// The window that this process has set for one actor of another process (RemoteActors::bound): counts its messages
/// that were sent and not handled there, and lets threads and actors wait until there are fewer. Threads: any.
class SendWindow {
 public:
  void set(const Window& window, WhenFull when_full) noexcept {
    most_messages_.store(std::max(window.messages, 1u));
    most_bytes_.store(std::max<std::uint64_t>(window.bytes, 1));
    when_full_.store(when_full);
  }
  WhenFull when_full() const noexcept { return when_full_.load(std::memory_order_relaxed); }
  bool full() const noexcept {
    return messages_.load(std::memory_order_relaxed) >= most_messages_.load(std::memory_order_relaxed) ||
           bytes_.load(std::memory_order_relaxed) >= most_bytes_.load(std::memory_order_relaxed);
  }
  std::uint64_t count() const noexcept { return messages_.load(std::memory_order_relaxed); }
  void enter() noexcept { messages_.fetch_add(1); }
  /// The lane has encoded the message, so its size is known now.
  void enter_bytes(std::uint64_t bytes) noexcept { bytes_.fetch_add(bytes); }
  /// May be called for messages that were sent before there was a window.
  void leave(std::uint64_t messages, std::uint64_t bytes) {
    take_from(messages_, messages);
    take_from(bytes_, bytes);
    if (half_empty()) notify();
  }
  /// Ends all waits: the actor has ended, its process is lost, or this process's remote actors have ended.
  void open() {
    open_.store(true);
    notify();
  }
  /// Waits while it is full, and then until it is half empty; false if the deadline passed first.
  bool wait(Blocking&, Deadline deadline) {
    std::unique_lock hold(mutex_);
    if (!full()) return true;
    ++waiters_;
    const bool fewer = fewer_.wait_until(hold, deadline.at(), [&] { return open_.load() || half_empty(); });
    --waiters_;
    return fewer;
  }
  /// Calls `then` when there is space: now, or on the thread that makes space. It must not block.
  void when_there_is_space(std::function<void()> then) {
    {
      const std::scoped_lock hold(mutex_);
      if (full() && !open_.load()) {
        ++waiters_;
        asked_ = std::move(then);
        if (!half_empty() && !open_.load()) return;
        then = std::exchange(asked_, nullptr);
        --waiters_;
      }
    }
    then();
  }

 private:
  static void take_from(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
    std::uint64_t before = counter.load();
    while (!counter.compare_exchange_weak(before, before - std::min(before, amount))) {
    }
  }
  bool half_empty() const noexcept {
    return messages_.load() <= most_messages_.load() / 2 && bytes_.load() <= most_bytes_.load() / 2;
  }
  void notify() {
    if (waiters_.load() == 0) return;
    std::function<void()> asked;
    {
      const std::scoped_lock hold(mutex_);
      asked = std::exchange(asked_, nullptr);
      if (asked) --waiters_;
      fewer_.notify_all();
    }
    if (asked) asked();
  }

  std::atomic<std::uint32_t> most_messages_{1};
  std::atomic<std::uint64_t> most_bytes_{1};
  std::atomic<WhenFull> when_full_{WhenFull::error};
  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> waiters_{0};
  std::mutex mutex_;  // guards asked_, and is used to sleep
  std::condition_variable fewer_;
  std::function<void()> asked_;  // only one caller sets it: the window watcher
};

}  // namespace troupe::remote
