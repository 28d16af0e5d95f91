#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/lanes/active_wait.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {

/// Waits for what a lane brings by driving that lane as long as its own thread sleeps: a message need not wake that
/// thread first, which then wakes this one. What else the lane has to do is done too: tasks, the hook, alarms. While
/// another thread drives it, and for lines that other processes move through shared memory, it waits as ever.
class LaneWait final : public ActiveWait {
 public:
  /// `lane` outlives this object and is stopped after the last wait; `spin`: how long to poll the lane when nothing
  /// happens before sleeping, 0 where there are fewer cores than threads.
  LaneWait(LaneLoop& lane, std::chrono::nanoseconds spin);
  ~LaneWait();
  LaneWait(const LaneWait&) = delete;
  LaneWait& operator=(const LaneWait&) = delete;

  void about_to_wait() noexcept override;
  Status wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline deadline, std::string_view what) override;

 private:
  struct News;
  class Turn;
  struct Goal;
  void drive(const Goal& goal);
  void sleep(const Goal& goal, Clock::time_point idle_since, bool& watched);

  LaneLoop& lane_;
  const std::chrono::nanoseconds spin_;
  std::shared_ptr<News> news_;  // whose turn it is
};

}  // namespace troupe
