#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_options.hpp"
#include "runtime/lanes/transport.hpp"

namespace troupe {

/// Work for a lane's thread: a link of an intrusive list, so posting never allocates. Owned by the poster, which keeps
/// it alive until run() has begun.
class LaneTask {
 public:
  virtual void run() noexcept = 0;

 protected:
  virtual ~LaneTask() = default;  // not deleted through this interface; virtual because LaneLoop, a friend, could

 private:
  friend class LaneLoop;
  LaneTask* next_ = nullptr;
};

/// The thread that owns one lane: runs posted tasks, drives the transport, sleeps in epoll when both are idle. While it
/// sleeps, another thread may drive the lane (also_drives, LaneWait); "the lane's thread" then means that thread.
class LaneLoop {
 public:
  LaneLoop(Transport& transport, Lane lane, LaneOptions options, std::string thread_name);
  /// Stops the lane and joins the thread.
  ~LaneLoop();
  /// Starts the thread. Throws Error{environment} if it cannot be started, or not on the CPUs of the options.
  void start();
  /// Runs `task` on the lane's thread soon, in the order of posting. Any thread. After stop() tasks are not run, and
  /// post() returns false.
  bool post(LaneTask& task) noexcept;
  /// Whether the caller runs on the lane's thread, within the lane's work.
  bool on_thread() const noexcept;
  Lane lane() const noexcept;
  Transport& transport() const noexcept;
  /// Sets a hook, which is called on the lane's thread after each round that did something, e.g. to run actors that
  /// became ready; it returns whether it did something. Before start().
  void after_round(std::function<bool()> hook);
  /// While this lane's thread polls and `other`'s sleeps, this thread drives `other` too: messages there need not wait
  /// until that thread wakes up, which takes microseconds, and much longer if both share a core. Before start().
  /// `other` must be stopped before it is destroyed, and this lane before `other`.
  void also_drives(LaneLoop& other);
  /// Sets an alarm. It is called on the lane's thread soon after start(), and then at the time that its last call
  /// returned, or up to a round later; max(): never again. Before start().
  void on_time(std::function<Clock::time_point()> alarm);
  /// Runs the posted tasks, drives sends to completion until `deadline`, ends the thread. False if sends were pending.
  bool stop(Deadline deadline, const std::function<bool()>& drained = {});

 private:
  friend class LaneWait;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
