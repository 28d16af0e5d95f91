#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/compute/stream.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// How a replica gets numbers of all ranks in the middle of a step. It only knows that every rank has a part of one
/// memory, and that all parts are here after gather(). Threads: one caller at a time.
class RankGather {
 public:
  virtual ~RankGather() = default;
  virtual std::uint32_t ranks() const noexcept = 0;
  virtual Rank rank() const noexcept = 0;
  /// In the device's memory, gathered_bytes(graph) each. The replica writes this rank's part and reads the others'.
  virtual Memory part(Rank rank) const noexcept = 0;
  /// Only enqueues on `stream`. Work enqueued after the call finds here the first `size_bytes` of every rank's part, as
  /// that rank's work before the call left them, and may overwrite this rank's part. Every rank makes the same calls in
  /// the same order. A rank that is lost, or is not there within the stream's deadline, ends the stream, as in every
  /// wait.
  virtual void gather(Stream& stream, std::uint64_t size_bytes) = 0;
};

/// The count of some numbers, their mean, and the sum of the squares of their distances from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  /// Adds `other`'s numbers. Source: Chan, Golub, LeVeque 1979 (Updating formulae and a pairwise algorithm for
  /// computing sample variances), equation 2.1.
  void add(const Moments& other) noexcept {
    if (other.count == 0) return;
    const double all = count + other.count, distance = other.mean - mean;
    mean += distance * (other.count / all);
    squares += other.squares + distance * distance * (count * other.count / all);
    count = all;
  }
  double variance() const noexcept { return count > 0 ? squares / count : 0; }
  /// Divided by count - 1.
  double unbiased_variance() const noexcept { return count > 1 ? squares / (count - 1) : variance(); }
};

// The data that a synchronized batch norm gathers. It is the same for all kinds of devices, because a job may have
// several. A rank without samples contributes zero bytes. The parts are combined in f64, in rank order, so that all
// ranks get the same bits.

/// A rank's part in the middle of the forward pass: the moments of each channel in its batch.
struct MomentsPart {
  std::uint64_t* count;  // numbers in each channel
  float* means;          // [channels]
  float* squares;        // [channels]
};
constexpr std::uint64_t moments_bytes(std::uint64_t channels) noexcept { return 8 + 2 * channels * sizeof(float); }
MomentsPart moments_in(std::byte* part, std::uint64_t channels) noexcept;
/// The moments of one channel over all ranks' parts.
Moments moments_of(std::span<std::byte* const> parts, std::uint64_t channels, std::uint64_t channel) noexcept;

/// A rank's part in the middle of the backward pass: for each channel the sum of the output's gradients, and the sum of
/// these times the normalized input.
struct GradientSumsPart {
  float* sums;      // [channels]
  float* products;  // [channels]
};
constexpr std::uint64_t gradient_sums_bytes(std::uint64_t channels) noexcept { return 2 * channels * sizeof(float); }
GradientSumsPart gradient_sums_in(std::byte* part, std::uint64_t channels) noexcept;
struct GradientSums {
  double sum = 0, product = 0;
};
GradientSums gradient_sums_of(std::span<std::byte* const> parts, std::uint64_t channels,
                              std::uint64_t channel) noexcept;

/// The largest part that one of the graph's layers needs, a multiple of 64; 0: no layer gathers anything.
std::uint64_t gathered_bytes(const Graph& graph);

}  // namespace troupe
