#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/lanes/active_wait.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {

/// Waits for data from a lane by driving that lane while its own thread sleeps, so a message need not wake that thread
/// first and then this one. The lane's other work is done too: tasks, the hook, alarms. It waits in the ordinary way
/// while another thread drives the lane, and for timelines that other processes signal through shared memory.
class LaneWait final : public ActiveWait {
 public:
  /// `lane` outlives this object and is stopped after the last wait; `spin`: how long to poll the lane when nothing
  /// happens before sleeping; 0 if there are fewer cores than threads.
  LaneWait(LaneLoop& lane, std::chrono::nanoseconds spin);
  ~LaneWait();
  LaneWait(const LaneWait&) = delete;
  LaneWait& operator=(const LaneWait&) = delete;

  void about_to_wait() noexcept override;
  Status wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline deadline, std::string_view what) override;

 private:
  struct SignalWaker;
  class Turn;
  struct Goal;
  void drive(const Goal& goal);
  void sleep(const Goal& goal, Clock::time_point idle_since, bool& watched);

  LaneLoop& lane_;
  const std::chrono::nanoseconds spin_;
  std::shared_ptr<SignalWaker> waker_;  // how a signal of another thread wakes the guest
};

}  // namespace troupe
