#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph.hpp"
#include "runtime/layout.hpp"

namespace troupe {

/// A set of labelled samples in memory, read only. Threads: any.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t count_samples() const noexcept = 0;
  virtual const Shape& shape() const noexcept = 0;
  virtual std::uint32_t count_classes() const noexcept = 0;
  /// Decodes the samples `indices` (at most batch.rows) into the first rows of the batch at `slot` (batch.size_bytes()
  /// bytes); what lies behind them is left alone.
  virtual void fill(std::span<const std::uint64_t> indices, const BatchLayout& batch, std::byte* slot) const = 0;
  /// Memory the samples take.
  virtual std::uint64_t size_bytes() const noexcept = 0;
};

/// A training set and a test set that belong together, and where they came from, for people.
struct DataSet {
  std::unique_ptr<Source> train;
  std::unique_ptr<Source> test;
  std::string origin;
};

/// The global, endless order of samples: epoch e is a permutation of all samples drawn from (seed, e); position p is
/// the p mod n-th of epoch p / n. It knows nothing of ranks, so any world size sees the same order. Threads: one.
class SampleOrder {
 public:
  SampleOrder(std::uint64_t count_samples, std::uint64_t seed);
  /// The samples at positions [first, first + out.size()).
  void fill(std::uint64_t first, std::span<std::uint64_t> out);

 private:
  /// An epoch's order. Two are kept: steps, and the ranks of a node whose batches one loader makes, lie on both sides
  /// of an epoch's end.
  struct Drawn {
    std::uint64_t epoch = ~std::uint64_t{0};
    std::vector<std::uint32_t> permutation;
  };
  const std::vector<std::uint32_t>& order_of(std::uint64_t epoch);

  std::uint64_t count_samples_;
  std::uint64_t seed_;
  std::array<Drawn, 2> drawn_;  // the one used last first
};

}  // namespace troupe
