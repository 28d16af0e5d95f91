#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe::testing {

inline constexpr std::chrono::seconds kSoon{10};

template <class Condition>
bool wait_until(Condition condition) {
  const Deadline deadline = Deadline::after(kSoon);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Runs a function once a posting.
class Call final : public LaneTask {
 public:
  explicit Call(std::function<void()> body) : body_(std::move(body)) {}
  void run() noexcept override { body_(); }

 private:
  const std::function<void()> body_;
};

}  // namespace troupe::testing
