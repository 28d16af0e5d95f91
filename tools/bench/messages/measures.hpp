#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "tools/bench/messages/end.hpp"

namespace troupe::bench {

/// What streams beside small messages.
constexpr std::uint64_t kStreamedBytes = 16u << 20;
/// One-way messages are acknowledged by so many; so many are under way at most, a multiple.
constexpr std::uint64_t kCountedAtOnce = 64;
constexpr std::uint64_t kCountedAhead = 1024;

/// Times round trips in batches: a look at the clock costs 4 % of the fastest trips.
class RoundTrips {
 public:
  struct Plan {
    std::uint32_t batch;  // trips between two looks at the clock
    Clock::duration span;
  };
  explicit RoundTrips(Plan plan);

  /// The first trip begins.
  void begin();
  /// Counts a trip that has just ended; false when enough were.
  bool again() { return --left_ > 0 || end_batch(); }
  /// Half a round trip: of the batches' means the one that the share `quantile` stays below.
  double one_way_us(double quantile = 0.5) const;

 private:
  bool end_batch();

  const Plan plan_;
  std::uint32_t left_;
  bool warm_ = false;
  Clock::time_point begun_;
  Clock::time_point batch_begun_;
  std::vector<double> one_way_us_;
};

/// How round trips of the case's size are timed.
RoundTrips::Plan latency_plan(const EndCase& what);
/// "us".
Figures latency_figures(const RoundTrips& trips);
/// "us" and "us_p99", of trips that were timed one by one.
Figures spread_figures(const RoundTrips& trips);
/// The control lane's options; raw UCX spins by them too.
LaneOptions control_lane(const EndCase& what);

/// Counts messages against time, from acknowledgements.
class Rate {
 public:
  explicit Rate(Clock::duration span) : span_(span) {}
  void begin();
  /// `arrived` messages in all have arrived there; false when it was measured for long enough.
  bool again(std::uint64_t arrived);
  double thousand_a_second() const;

 private:
  const Clock::duration span_;
  bool warm_ = false;
  Clock::time_point begun_;
  std::uint64_t before_ = 0;  // arrived until the warm-up ended
  std::uint64_t arrived_ = 0;
  Clock::duration took_{};
};

/// Bytes a second, both ways together, of echoes of kStreamedBytes that another thread counts, since it was made.
class Throughput {
 public:
  explicit Throughput(const std::atomic<std::uint64_t>& echoes)
      : echoes_(echoes), before_(echoes.load()), begun_(Clock::now()) {}
  double gb_s() const {
    const std::chrono::duration<double, std::nano> took = Clock::now() - begun_;
    return static_cast<double>(2 * kStreamedBytes * (echoes_.load() - before_)) / took.count();
  }

 private:
  const std::atomic<std::uint64_t>& echoes_;
  const std::uint64_t before_;
  const Clock::time_point begun_;
};

/// A measurement's end, told by one thread to the one that waits.
class Finish {
 public:
  void tell() { told_.set_value(); }
  void wait(Blocking&, Clock::duration patience) {
    TROUPE_CHECK(ended_.wait_for(patience) == std::future_status::ready, Code::timeout,
                 "the measurement did not end in time: a message was lost, or this machine is very busy");
  }

 private:
  std::promise<void> told_;
  std::future<void> ended_ = told_.get_future();
};

}  // namespace troupe::bench
