#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/clock.hpp"
#include "runtime/lanes/lane_options.hpp"
#include "runtime/lanes/transport.hpp"

namespace troupe {

/// Work for a lane's thread: an intrusive link, so posting never allocates. Owned by the poster, alive until run() has
/// begun.
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
/// sleeps another thread may drive the lane in its place (also_drives, LaneWait); "the lane's thread" is then that one.
class LaneLoop {
 public:
  LaneLoop(Transport& transport, Lane lane, LaneOptions options, std::string thread_name);
  /// Stops and joins.
  ~LaneLoop();
  /// Starts the thread. Throws Error{environment} when it cannot be had, or not on the CPUs of the options.
  void start();
  /// Runs `task` on the lane's thread, soon, in the order of posting. Any thread. After stop() tasks are not run:
  /// posting returns false.
  bool post(LaneTask& task) noexcept;
  /// Whether the caller is the lane's thread, in the lane's work.
  bool on_thread() const noexcept;
  Lane lane() const noexcept;
  Transport& transport() const noexcept;
  /// Called on the lane's thread after each round that did something, e.g. to run actors that became runnable; returns
  /// whether it did something. Before start().
  void after_round(std::function<bool()> hook);
  /// While this lane's thread polls and `other`'s sleeps, it drives that one too: what comes there need not wait for a
  /// thread to wake up, which takes microseconds, and much longer when both have one core. Before start(); `other` is
  /// stopped before it is destroyed, and this lane before `other`.
  void also_drives(LaneLoop& other);
  /// Called on the lane's thread soon after start() and then at the time it returned last, give or take what a round
  /// takes; max(): never again. Before start().
  void on_time(std::function<Clock::time_point()> alarm);
  /// Runs what was posted, drives sends to their end until `deadline`, and ends the thread. False when sends were left.
  bool stop(Deadline deadline, const std::function<bool()>& drained = {});

 private:
  friend class LaneWait;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
