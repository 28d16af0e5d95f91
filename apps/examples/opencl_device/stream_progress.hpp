#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "opencl_api.hpp"
#include "runtime/memory/timeline.hpp"
#include "wait_keeper.hpp"

namespace opencl {

/// Why a stream failed, in memory that its kernels read; the same as in kernels/common.cl.
struct Fault {
  enum Kind : std::uint64_t { none, being_written, no_such_class, foreign_journal, ended_by_host };
  std::uint64_t code = none;
  std::uint64_t sequence = 0;  // of the marker before which the kernel was enqueued
  std::uint64_t where = 0;
  std::uint64_t what = 0;
};

/// How far a queue has come: markers in the queue, with callbacks that signal timelines, and the end at the first
/// failure. Threads: one enqueues; callbacks run on OpenCL's threads, in any order.
class Progress final : public Ending {
 public:
  Progress(cl_command_queue queue, WaitKeeper& waits, Timeline& own) : queue_(queue), waits_(waits), own_(own) {}
  /// Waits until every callback has run; the queue must be empty.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  Fault& fault() noexcept { return fault_; }
  /// The number of the last marker.
  std::uint64_t sequence() const noexcept { return sequence_; }
  /// Enqueues a marker that signals `line`.
  void then_signal(Timeline& line, std::uint64_t value) { enqueue({0, &line, value, nullptr}); }
  /// Enqueues a marker that starts the deadline of a wait.
  void then_arrive(std::shared_ptr<AwaitedPoint> point) { enqueue({0, nullptr, 0, std::move(point)}); }

  bool ended() const noexcept override { return ended_.load(std::memory_order_acquire); }
  /// From now on kernels that have not begun do nothing, no line is signalled, and the stream's own line is poisoned.
  /// The first reason remains.
  void end(const Status& why) noexcept override;

 private:
  struct Marker {
    std::uint64_t sequence = 0;
    Timeline* line = nullptr;  // the line to signal, or
    std::uint64_t value = 0;
    std::shared_ptr<AwaitedPoint> point;  // the wait to start
  };
  struct Callback {
    Progress* progress;
    std::uint64_t sequence;
  };
  static void CL_CALLBACK passed(cl_event, cl_int status, void* callback);
  void enqueue(Marker marker);
  void come_to(std::uint64_t sequence, cl_int status) noexcept;
  Status reported_before(std::uint64_t sequence) noexcept;

  const cl_command_queue queue_;
  WaitKeeper& waits_;
  Timeline& own_;
  alignas(128) Fault fault_;
  alignas(128) std::atomic<bool> ended_{false};
  std::uint64_t sequence_ = 0;  // used by the enqueuing thread
  std::mutex mutex_;            // guards markers_ and callbacks_; lines are signalled under it, in order
  std::condition_variable quiet_;
  std::deque<Marker> markers_;
  std::uint64_t callbacks_ = 0;  // number of callbacks that have not run
};

}  // namespace opencl
