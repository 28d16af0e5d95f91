#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "devices/cuda/stream_lanes.hpp"
#include "devices/cuda/stream_timer.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe::cuda {

/// What the host knows of one stream while its GPU works: the signals that will come, in their order, and the lines
/// that it waits for. Threads: expects() and waits() are the enqueuing side's, look() has one caller at a time, the
/// rest any.
class StreamWatch {
 public:
  /// All outlive it.
  StreamWatch(const Gpu& gpu, StreamHandle stream, StreamReport& report, Timeline& own,
              std::array<StreamTimer*, kLanes> timers, std::chrono::milliseconds deadline)
      : gpu_(gpu), stream_(stream), report_(report), own_(own), timers_(timers), deadline_(deadline) {}

  /// `word` will come to `value`: then those who sleep on `line` are woken; with `carries` the line is raised, too.
  void expects(const std::uint64_t* word, Timeline& line, std::uint64_t value, bool carries);
  /// The GPU will read `word` for `line`.
  void waits(const std::uint64_t* word, Timeline& line);
  /// The stream has ended, if it has not yet: its line is poisoned.
  void end(const Status& why) noexcept;
  bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  enum class Seen : std::uint8_t { nothing, waiting, progress };
  /// Carries on what the GPU has done meanwhile. `asks`: the driver is asked whether the GPU still works.
  Seen look(bool asks) noexcept;

 private:
  struct Signal {
    const std::uint64_t* word;
    Timeline* line;
    std::uint64_t value;
    bool carries;
  };
  bool carry_on() noexcept;
  Status why() const;
  Status why_not_reached(StreamFault fault) const;

  const Gpu& gpu_;
  const StreamHandle stream_;
  StreamReport& report_;
  Timeline& own_;
  const std::array<StreamTimer*, kLanes> timers_;
  const std::chrono::milliseconds deadline_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::deque<Signal> signals_;
  std::unordered_map<std::uintptr_t, Timeline*> waited_;  // by address of the word
};

/// A thread that looks after the streams of a device while something is to come: it wakes those who sleep on lines that
/// a GPU has raised, and ends lines whose stream has failed. It polls, ever less often while nothing happens, and
/// sleeps when nothing is to come; no work of a step waits for it.
class Notifier {
 public:
  Notifier();
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  void add(StreamWatch& watch);
  /// The thread does not look at it any more.
  void remove(StreamWatch& watch);
  /// Something is to come.
  void ring() noexcept;

 private:
  void run();

  std::mutex mutex_;  // guards watches_ and stop_; held while the thread looks
  std::condition_variable changed_;
  std::vector<StreamWatch*> watches_;
  bool stop_ = false;
  std::atomic<bool> sleeps_{false};
  std::thread thread_;
};

}  // namespace troupe::cuda
