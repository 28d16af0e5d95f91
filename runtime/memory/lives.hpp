#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// A part of a sequence of calls, both ends included: what needs memory from the first of these calls to the last.
struct Life {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool overlaps(const Life& other) const noexcept { return first <= other.last && other.first <= last; }
  friend bool operator==(const Life&, const Life&) = default;
};

/// Something that needs so many bytes during its lives, of which no two overlap; without lives, it needs none.
struct LivingBlock {
  std::uint64_t size_bytes = 0;
  std::vector<Life> lives{};
  /// Whether there is a call during which both are alive.
  bool overlaps(const LivingBlock& other) const noexcept;
};

/// Where blocks lie in one piece of memory.
struct SharedPlaces {
  std::vector<std::uint64_t> offsets;  // by block; multiples of kAlignment
  std::uint64_t size_bytes = 0;        // of the whole
  static constexpr std::uint64_t kAlignment = 64;
};

/// Lets blocks that are never alive at the same time share memory. The largest block is placed first, and each one in
/// the smallest gap that is left for it between the blocks that are alive with it; of equal gaps, the first. Takes time
/// with the square of the number of blocks. Source: Pisarchyk, Lee 2020 (Efficient memory management for deep neural
/// net inference), section 5.1.
SharedPlaces share_by_lives(std::span<const LivingBlock> blocks);

/// What the blocks need when nothing is shared, laid out one behind the other.
SharedPlaces place_apart(std::span<const LivingBlock> blocks);

/// The most bytes that are alive during one call: no placement takes less.
std::uint64_t most_alive(std::span<const LivingBlock> blocks);

}  // namespace troupe
