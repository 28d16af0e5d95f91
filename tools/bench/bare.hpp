#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "apps/session/session.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

namespace troupe::bench {

/// Which part of a measurement counts.
struct Pace {
  std::size_t warm_steps = 25;   // steps at the start that do not count
  std::size_t window_steps = 5;  // the fewest steps of a window; with fewer the value would be too noisy
};

/// The times at which steps were committed.
class StepClock {
 public:
  static constexpr std::size_t kWindows = 5;

  /// `threads`: of the device that takes the steps.
  explicit StepClock(std::uint32_t threads = 1) : threads_(threads) {}
  std::uint32_t threads() const noexcept { return threads_; }
  /// Notes a committed step with `samples` samples.
  void note(std::uint64_t samples) {
    at_.push_back(Clock::now());
    samples_ = samples;
  }
  /// Samples/s in equal windows over the steps after the warm-up. Throws Error{invalid} if there are too few steps.
  std::vector<double> windows(const Pace& pace) const {
    const std::size_t least = pace.warm_steps + kWindows * pace.window_steps + 1;
    TROUPE_CHECK(at_.size() >= least, Code::invalid, "measured too short: ", at_.size(), " steps, but ",
                 pace.warm_steps, " to warm up and ", kWindows, " windows of ", pace.window_steps, " need ", least,
                 "; give --seconds more, or --batch less");
    std::vector<double> values;
    const std::size_t steps = (at_.size() - pace.warm_steps - 1) / kWindows;
    for (std::size_t w = 0; w < kWindows; ++w) {
      const std::size_t first = pace.warm_steps + w * steps;
      const double seconds = std::chrono::duration<double>(at_[first + steps] - at_[first]).count();
      values.push_back(std::round(static_cast<double>(samples_ * steps) / seconds * 100) / 100);
    }
    return values;
  }

 private:
  std::uint32_t threads_;
  std::vector<Clock::time_point> at_;
  std::uint64_t samples_ = 0;  // of a step
};

/// Trains as one rank of a job on this machine without any actor: the same plan, arenas, device, replica and exchange
/// as a session's, called from a loop on the calling thread, which also fills the batches. Ends together with the other
/// ranks after `seconds`. The additional time that a session takes is the cost of its actors. The learning rate is
/// constant, which costs as much as any other. Throws Error{unsupported} unless the policy is sync, on one node, with
/// equal batches and no evaluations.
StepClock run_bare(Blocking& blocking, const SessionOptions& options, double seconds);

/// Runs only the matrix products of that rank's steps, for `seconds`, divided into as many windows as StepClock has.
/// Returns the microseconds per step, one value per window. Throws as run_bare().
std::vector<double> run_products(Blocking& blocking, const SessionOptions& options, double seconds);

}  // namespace troupe::bench
