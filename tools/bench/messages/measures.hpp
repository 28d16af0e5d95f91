#pragma once

#include <atomic>
#include <cstdint>
#include <future>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/lanes/lane_options.hpp"
#include "tools/bench/messages/end.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::bench {

/// The bytes of a tensor that is sent beside small messages.
constexpr std::uint64_t kStreamedBytes = 16u << 20;

/// A time span with a warm-up before it, in which caches, endpoints and pools fill.
class WarmSpan {
 public:
  explicit WarmSpan(Clock::duration span) : span_(span) {}
  void begin() { begun_ = Clock::now(); }
  /// Whether the warm-up was over before this call. The call that ends the warm-up returns false, and the span begins
  /// there.
  bool is_warm(Clock::time_point now) {
    constexpr int kWarmUpPart = 5;
    if (warm_) return true;
    if (now - begun_ >= span_ / kWarmUpPart) {
      warm_ = true;
      begun_ = now;
    }
    return false;
  }
  Clock::duration measured(Clock::time_point now) const { return now - begun_; }
  bool over(Clock::time_point now) const { return measured(now) >= span_; }

 private:
  const Clock::duration span_;
  bool warm_ = false;
  Clock::time_point begun_;
};

/// Times round trips in batches: reading the clock for each would take 4 % of the time of the fastest trips.
class RoundTrips {
 public:
  /// `batch`: the number of trips between two readings of the clock.
  RoundTrips(std::uint32_t batch, Clock::duration span) : batch_(batch), span_(span), left_(batch) {}
  /// With the batch that suits the size of the case.
  explicit RoundTrips(const EndCase& what)
      : RoundTrips(what.impl != "arena" && what.impl != "local" && what.bytes >= (64u << 10) ? 1u : 16u, what.span()) {}

  /// Call it before the first trip.
  void begin() {
    span_.begin();
    batch_begun_ = Clock::now();
  }
  /// Counts a trip that has just ended; false if there were enough.
  bool again() { return --left_ > 0 || end_batch(); }
  /// Half a round trip: the smallest of the batches' means that is not exceeded by the fraction `quantile` of them.
  double one_way_us(double quantile = 0.5) const {
    TROUPE_CHECK(one_way_us_.count() > 0, Code::invalid, "nothing was measured");
    return one_way_us_.at(quantile);
  }
  /// "us".
  Figures figures() const { return {{"us", one_way_us()}}; }

 private:
  static constexpr std::size_t kFewestBatches = 9;
  bool end_batch() {
    const auto now = Clock::now();
    if (span_.is_warm(now)) {
      one_way_us_.add(std::chrono::duration<double, std::micro>(now - batch_begun_).count() / batch_ / 2);
      if (one_way_us_.count() >= kFewestBatches && span_.over(now)) return false;
    }
    left_ = batch_;
    batch_begun_ = Clock::now();
    return true;
  }

  const std::uint32_t batch_;
  WarmSpan span_;
  std::uint32_t left_;
  Clock::time_point batch_begun_;
  Spread one_way_us_;
};

/// The options of the control lane; raw UCX polls according to them too.
inline LaneOptions control_lane(const EndCase& what) {
  LaneOptions options;
  if (what.spin_us > 0) options.spin = std::chrono::microseconds(what.spin_us);
  return options;
}

/// Measures messages per second, from acknowledgements.
class Rate {
 public:
  explicit Rate(Clock::duration span) : span_(span) {}
  void begin() { span_.begin(); }
  /// `arrived` messages have arrived at the other end so far; returns false if the measured time is over.
  bool again(std::uint64_t arrived) {
    const auto now = Clock::now();
    if (!span_.is_warm(now)) {
      before_ = arrived;
      return true;
    }
    arrived_ = arrived - before_;
    took_ = span_.measured(now);
    return !span_.over(now);
  }
  /// "kps".
  Figures figures() const {
    TROUPE_CHECK(arrived_ > 0 && took_.count() > 0, Code::invalid, "nothing was measured");
    return {{"kps", static_cast<double>(arrived_) / std::chrono::duration<double, std::milli>(took_).count()}};
  }

 private:
  WarmSpan span_;
  std::uint64_t before_ = 0;  // messages that arrived during the warm-up
  std::uint64_t arrived_ = 0;
  Clock::duration took_{};
};

/// Small messages, and at the same time echoes of kStreamedBytes, which another thread counts in `echoes` until `over`
/// is set.
class Mixture {
 public:
  std::atomic<std::uint64_t> echoes{0};
  std::atomic<bool> over{false};
  void begin() {
    before_ = echoes.load();
    begun_ = Clock::now();
  }
  /// "us" and "us_p99" of the small messages' trips, timed one by one, "gb_s" of the echoes in both directions
  /// together.
  Figures figures(const RoundTrips& trips) const {
    const std::chrono::duration<double, std::nano> took = Clock::now() - begun_;
    return {{"us", trips.one_way_us()},
            {"us_p99", trips.one_way_us(0.99)},
            {"gb_s", static_cast<double>(2 * kStreamedBytes * (echoes.load() - before_)) / took.count()}};
  }

 private:
  std::uint64_t before_ = 0;
  Clock::time_point begun_;
};

/// The end of a measurement, passed by one thread to the thread that waits.
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
