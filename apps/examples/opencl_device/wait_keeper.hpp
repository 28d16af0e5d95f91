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

/// What a wait that fails ends.
class Ending {
 public:
  virtual bool ended() const noexcept = 0;
  virtual void end(const Status& why) noexcept = 0;

 protected:
  ~Ending() = default;
};

/// A point that a command queue waits for: the queue stands behind a user event, which a WaitKeeper completes.
struct AwaitedPoint {
  Timeline* line = nullptr;
  std::uint64_t value = 0;
  OwnedEvent event;                         // the user event
  Ending* stream = nullptr;                 // alive until the event is complete
  std::optional<Status> told;               // the line's word: reached, or the reason why not
  std::optional<Clock::time_point> begins;  // when the queue came here
};

/// Completes the user events of all waits of a device, in a thread of its own: when the point is reached; when its line
/// is poisoned or the queue has stood there for too long, after ending the stream. A wait only fails once its queue has
/// come to it: the work before it is not harmed. The event is completed in every case, never failed: work behind it
/// then finds its stream ended and does nothing, whatever a platform does with failed events. Threads: any.
class WaitKeeper {
 public:
  explicit WaitKeeper(std::chrono::milliseconds wait_deadline);
  /// After all streams.
  ~WaitKeeper();
  WaitKeeper(const WaitKeeper&) = delete;
  WaitKeeper& operator=(const WaitKeeper&) = delete;

  /// Begins to watch `point.line` for `point`.
  void watch(const std::shared_ptr<AwaitedPoint>& point);
  /// The queue has come to `point`; its time runs from now on.
  void arrived(const std::shared_ptr<AwaitedPoint>& point);
  /// A stream has ended: it waits no more.
  void look_again() noexcept;

 private:
  struct State {
    std::mutex mutex;  // guards what follows, and told and begins of the points
    std::condition_variable news;
    std::vector<std::shared_ptr<AwaitedPoint>> points;
    bool stop = false;
  };
  class Told;
  void run();
  /// What is to be done about `point`: a status to complete it with, or nothing yet.
  std::optional<Status> outcome(const AwaitedPoint& point) const;

  const std::chrono::milliseconds wait_deadline_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // a line may tell when the keeper is gone
  std::thread thread_;
};

}  // namespace opencl
