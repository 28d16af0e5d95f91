#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "opencl_api.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/memory/timeline.hpp"

namespace opencl {

/// Ended by a wait that fails.
class Ending {
 public:
  virtual bool ended() const noexcept = 0;
  virtual void end(const Status& why) noexcept = 0;

 protected:
  ~Ending() = default;
};

/// A point that a command queue waits for: the queue waits for a user event, which a WaitKeeper completes.
struct AwaitedPoint {
  Timeline* line = nullptr;
  std::uint64_t value = 0;
  OwnedEvent event;                         // the user event
  Ending* stream = nullptr;                 // alive until the event is complete
  std::optional<Status> told;               // the line's result: reached, or the reason why not
  std::optional<Clock::time_point> begins;  // when the queue reached the wait
};

/// Completes the user events of all waits of a device, on a separate thread: when the point is reached; or, after
/// ending the stream, when its line is poisoned or the queue has waited for too long. A wait fails only when its queue
/// has reached it, so earlier work is not affected. The event is always completed, never failed: work after it then
/// finds that its stream has failed and does nothing, however a platform treats failed events. Threads: any.
class WaitKeeper {
 public:
  explicit WaitKeeper(std::chrono::milliseconds wait_deadline);
  /// Destroy it after all streams.
  ~WaitKeeper();
  WaitKeeper(const WaitKeeper&) = delete;
  WaitKeeper& operator=(const WaitKeeper&) = delete;

  /// Begins to watch `point.line` for `point`.
  void watch(const std::shared_ptr<AwaitedPoint>& point);
  /// The queue has reached `point`; its deadline starts now.
  void arrived(const std::shared_ptr<AwaitedPoint>& point);
  /// A stream has failed: it waits for nothing any more.
  void look_again() noexcept;

 private:
  struct State {
    std::mutex mutex;  // guards the members below, and `told` and `begins` of the points
    std::condition_variable changed;
    std::vector<std::shared_ptr<AwaitedPoint>> points;
    bool stop = false;
  };
  class Told;
  void run();
  /// The status with which to complete `point`, or nothing: it must wait.
  std::optional<Status> outcome(const AwaitedPoint& point) const;

  const std::chrono::milliseconds wait_deadline_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // a line may call back after the keeper is gone
  std::thread thread_;
};

}  // namespace opencl
