#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "runtime/memory/timeline.hpp"

namespace troupe {

/// A timeline on a logical clock: an object of this process, which others know only through AddressSpace::bind(). With
/// `drive`, wait() calls it to do work instead of only waiting for other threads.
class FakeTimeline final : public Timeline {
 public:
  /// `drive` does one piece of work and returns whether there was one; threads in wait() call it without holding locks.
  explicit FakeTimeline(TimelineId id, std::function<bool()> drive = {}) : id_(id), drive_(std::move(drive)) {}
  /// Calls the remaining wakers with Code::aborted.
  ~FakeTimeline() override;
  FakeTimeline(const FakeTimeline&) = delete;
  FakeTimeline& operator=(const FakeTimeline&) = delete;

  TimelineId id() const noexcept override { return id_; }
  std::uint64_t value() const noexcept override;
  std::uint64_t word() const noexcept override;
  void signal(std::uint64_t to) noexcept override;
  void add(std::uint64_t count) noexcept override;
  void poison(const Status& why) noexcept override;
  Status status() const noexcept override;
  void wake(std::uint64_t at, Waker& waker) override;
  Status wait(Blocking& blocking, std::uint64_t at, Deadline deadline, std::string_view what) override;

 private:
  struct Entry {
    std::uint64_t at;
    Waker* waker;
  };
  void wake_due() noexcept;

  const TimelineId id_;
  const std::function<bool()> drive_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::uint64_t value_ = 0;
  Status poison_;
  std::vector<Entry> entries_;
};

}  // namespace troupe
