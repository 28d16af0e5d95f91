#pragma once

#include <chrono>

namespace troupe {

/// Where the time of a stream's thread went since its first piece of work, as it passes on a clock: the parts add up to
/// that time, but for the work or the wait now under way. All zero: the device does not measure itself.
struct StreamTimes {
  using Span = std::chrono::nanoseconds;
  Span load{};      // waited for a training batch: it was not ready, or not enqueued yet
  Span compute{};   // forward and backward
  Span exchange{};  // waited for other ranks, signalled to them, added up what they brought
  Span update{};    // the optimizer's pass over its stripe
  Span evaluate{};  // forward over test batches, and waiting for those
  Span copy{};      // copies, which is how a checkpoint leaves the stream
  Span idle{};      // nothing was enqueued, and what came next was no batch

  Span total() const noexcept { return load + compute + exchange + update + evaluate + copy + idle; }
  friend StreamTimes operator-(const StreamTimes& a, const StreamTimes& b) noexcept {
    return {a.load - b.load,         a.compute - b.compute, a.exchange - b.exchange, a.update - b.update,
            a.evaluate - b.evaluate, a.copy - b.copy,       a.idle - b.idle};
  }
  friend bool operator==(const StreamTimes&, const StreamTimes&) = default;
};

}  // namespace troupe
