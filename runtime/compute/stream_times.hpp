#pragma once

#include <chrono>

namespace troupe {

/// How the time of a stream's thread since its first work was spent, by the clock. The parts add up to that time,
/// except for the present work or wait. All zero: the device does not measure.
struct StreamTimes {
  using Span = std::chrono::nanoseconds;
  Span load{};      // waited for a training batch that was not ready or not enqueued yet
  Span compute{};   // forward and backward
  Span exchange{};  // waited for other ranks, signalled them, added up their data
  Span update{};    // the optimizer's pass over its stripe
  Span evaluate{};  // forward over test batches, and waits for these batches
  Span copy{};      // copies, such as those of a checkpoint
  Span idle{};      // nothing was enqueued, and the next work was not a batch

  Span total() const noexcept { return load + compute + exchange + update + evaluate + copy + idle; }
  friend StreamTimes operator-(const StreamTimes& a, const StreamTimes& b) noexcept {
    return {a.load - b.load,         a.compute - b.compute, a.exchange - b.exchange, a.update - b.update,
            a.evaluate - b.evaluate, a.copy - b.copy,       a.idle - b.idle};
  }
  friend bool operator==(const StreamTimes&, const StreamTimes&) = default;
};

}  // namespace troupe
