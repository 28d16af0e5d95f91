#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::remote {

/// A sum. A caller on the control lane says so, and adds without a locked instruction; any other thread may add, too.
class Sum {
 public:
  void add(std::uint64_t n, bool on_lane) noexcept {
    if (on_lane) {
      of_lane_.store(of_lane_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    } else {
      of_others_.fetch_add(n, std::memory_order_relaxed);
    }
  }
  void subtract(std::uint64_t n, bool on_lane) noexcept { add(0 - n, on_lane); }  // one of the two words may be below 0
  std::uint64_t get() const noexcept {
    return of_lane_.load(std::memory_order_relaxed) + of_others_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> of_lane_{0};
  std::atomic<std::uint64_t> of_others_{0};
};

/// The bytes of this process's messages in one direction: those that wait to be sent, or those of peers that are here.
/// It reports when there are too many and never waits. Callers check before they add, so the limit may be exceeded by
/// one message of each thread. Threads: any.
class Budget {
 public:
  explicit Budget(std::uint64_t limit_bytes) noexcept : limit_(limit_bytes) {}
  bool full() const noexcept { return used() >= limit_; }
  void enter(std::uint64_t bytes, bool on_lane = false) noexcept { used_.add(bytes, on_lane); }
  void leave(std::uint64_t bytes, bool on_lane = false) noexcept { used_.subtract(bytes, on_lane); }
  /// Never below 0, even if another thread is changing the two words.
  std::uint64_t used() const noexcept {
    const auto used = static_cast<std::int64_t>(used_.get());
    return used < 0 ? 0 : static_cast<std::uint64_t>(used);
  }
  std::uint64_t limit() const noexcept { return limit_; }

 private:
  const std::uint64_t limit_;
  Sum used_;
};

/// A part of a budget; given back when the object is destroyed.
class Charge {
 public:
  Charge() = default;
  Charge(std::shared_ptr<Budget> budget, std::uint64_t bytes) noexcept : budget_(std::move(budget)), bytes_(bytes) {
    budget_->enter(bytes_);
  }
  Charge(Charge&& other) noexcept : budget_(std::move(other.budget_)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (budget_) budget_->leave(bytes_);
  }

 private:
  std::shared_ptr<Budget> budget_;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::remote
