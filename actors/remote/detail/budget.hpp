#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::remote {

/// Bytes that one side of this process's messages takes: those on their way out, or those of peers that are here. It
/// says when there are too many and never waits. Whoever adds a message looks first, so it may be exceeded by what one
/// message of each thread takes. Threads: any.
class Budget {
 public:
  explicit Budget(std::uint64_t limit_bytes) noexcept : limit_(limit_bytes) {}
  bool full() const noexcept { return used_.load(std::memory_order_relaxed) >= limit_; }
  void enter(std::uint64_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void leave(std::uint64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  std::uint64_t limit() const noexcept { return limit_; }

 private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_{0};
};

/// A part of a budget, held as long as the object lives.
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
