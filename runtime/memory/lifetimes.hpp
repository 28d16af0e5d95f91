#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// A range of consecutive calls, both ends included, during which something needs memory.
struct Lifetime {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool overlaps(const Lifetime& other) const noexcept { return first <= other.last && other.first <= last; }
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

/// A block that needs `size_bytes` during its lifetimes, which do not overlap each other; without lifetimes it needs
/// none.
struct BlockLifetimes {
  std::uint64_t size_bytes = 0;
  std::vector<Lifetime> lifetimes{};
  /// Whether both are alive during some call.
  bool overlaps(const BlockLifetimes& other) const noexcept;
};

/// The offsets of blocks in one piece of memory.
struct BlockOffsets {
  std::vector<std::uint64_t> offsets;  // one for each block; multiples of kAlignment
  std::uint64_t size_bytes = 0;        // of the whole piece
  static constexpr std::uint64_t kAlignment = 64;
};

/// Places blocks so that blocks that are never alive at the same time share memory. The largest block is placed first;
/// each block goes into the smallest gap between the blocks that are alive with it, and of equal gaps into the first.
/// The time grows with the square of the number of blocks. Source: Pisarchyk, Lee 2020 (Efficient memory management for
/// deep neural net inference), section 5.1.
BlockOffsets share_by_lifetimes(std::span<const BlockLifetimes> blocks);

/// The same blocks one after the other, without sharing.
BlockOffsets place_apart(std::span<const BlockLifetimes> blocks);

/// The most bytes that are alive during one call: every placement needs at least this much.
std::uint64_t most_alive(std::span<const BlockLifetimes> blocks);

}  // namespace troupe
