#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"

namespace troupe {

/// One rank's weights after a step, as xxh3 of each tensor's bytes.
struct RankDigest {
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  std::vector<std::uint64_t> tensors;  // in the layout's order
};

/// Compares the digests of all ranks' replicas after those steps after which all weights should have the same bits.
/// Threads: one.
class ReplicaDigests {
 public:
  /// `names`: the names of the tensors.
  ReplicaDigests(std::uint32_t ranks, std::vector<std::string> names);

  /// Adds a digest. Once all ranks' digests of a step are there, returns what is wrong: the first tensor and the first
  /// rank whose bits differ from rank 0's. Empty: ranks are missing, or all agree. Throws Error{invalid} for a digest
  /// of another model or job, and for a second one of the same rank and step.
  std::optional<std::string> add(const RankDigest& digest);
  /// For how many steps all ranks agreed.
  std::uint64_t count_equal() const noexcept { return equal_; }

 private:
  using OfStep = std::map<std::uint32_t, std::vector<std::uint64_t>>;  // by rank
  std::optional<std::string> difference(std::uint64_t step, const OfStep& ranks) const;

  const std::uint32_t ranks_;
  const std::vector<std::string> names_;
  std::map<std::uint64_t, OfStep> waiting_;  // by step
  std::uint64_t equal_ = 0;
};

}  // namespace troupe
