#include "runtime/memory/lifetimes.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace troupe {
namespace {

std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + BlockOffsets::kAlignment - 1) / BlockOffsets::kAlignment * BlockOffsets::kAlignment;
}

bool needs_memory(const BlockLifetimes& block) noexcept { return block.size_bytes > 0 && !block.lifetimes.empty(); }

/// The range of bytes of a placed block.
struct Taken {
  std::uint64_t first, end;
};

/// A block that has its place. What decides most pairs lies side by side: a step of 20,000 layers has 10^8 pairs.
struct Placed {
  Taken range;
  Lifetime span;  // from the block's first call to its last
  bool is_whole;  // it is alive during all of that
  const BlockLifetimes* block;
};

Lifetime span_of(const BlockLifetimes& block) noexcept {
  Lifetime span = block.lifetimes.front();
  for (const Lifetime& one : block.lifetimes) span = {std::min(span.first, one.first), std::max(span.last, one.last)};
  return span;
}

bool overlap(const Placed& a, const Placed& b) noexcept {
  return a.span.overlaps(b.span) && ((a.is_whole && b.is_whole) || a.block->overlaps(*b.block));
}

/// The offset of the smallest gap between `taken` (sorted by `first`) that has room for `size_bytes`.
std::uint64_t smallest_gap(const std::vector<Taken>& taken, std::uint64_t size_bytes) {
  std::uint64_t best = 0, best_size = 0, end = 0;
  for (const Taken& range : taken) {
    if (range.first > end) {
      const std::uint64_t gap = range.first - end;
      if (gap >= size_bytes && (best_size == 0 || gap < best_size)) {
        best = end;
        best_size = gap;
      }
    }
    end = std::max(end, range.end);
  }
  return best_size == 0 ? end : best;
}

}  // namespace

bool BlockLifetimes::overlaps(const BlockLifetimes& other) const noexcept {
  return std::ranges::any_of(lifetimes, [&](const Lifetime& lifetime) {
    return std::ranges::any_of(other.lifetimes, [&](const Lifetime& of_other) { return lifetime.overlaps(of_other); });
  });
}

BlockOffsets share_by_lifetimes(std::span<const BlockLifetimes> blocks) {
  BlockOffsets places{std::vector<std::uint64_t>(blocks.size())};
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return blocks[a].size_bytes > blocks[b].size_bytes;  // blocks of equal size keep their order
  });
  std::vector<Placed> placed;  // sorted by offset
  std::vector<Taken> taken;
  for (const std::size_t index : order) {
    const BlockLifetimes& block = blocks[index];
    if (!needs_memory(block)) continue;
    Placed next{{}, span_of(block), block.lifetimes.size() == 1, &block};
    taken.clear();
    for (const Placed& other : placed)
      if (overlap(next, other)) taken.push_back(other.range);
    const std::uint64_t size = aligned(block.size_bytes);
    places.offsets[index] = smallest_gap(taken, size);
    next.range = {places.offsets[index], places.offsets[index] + size};
    places.size_bytes = std::max(places.size_bytes, next.range.end);
    placed.insert(
        std::ranges::upper_bound(placed, next.range.first, {}, [](const Placed& other) { return other.range.first; }),
        next);
  }
  return places;
}

BlockOffsets place_apart(std::span<const BlockLifetimes> blocks) {
  BlockOffsets places{std::vector<std::uint64_t>(blocks.size())};
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    if (!needs_memory(blocks[block])) continue;
    places.offsets[block] = places.size_bytes;
    places.size_bytes += aligned(blocks[block].size_bytes);
  }
  return places;
}

std::uint64_t most_alive(std::span<const BlockLifetimes> blocks) {
  // For each call, the bytes that begin to be needed minus those that are no longer needed, modulo 2^64.
  std::map<std::uint32_t, std::uint64_t> changes;
  for (const BlockLifetimes& block : blocks) {
    if (!needs_memory(block)) continue;
    for (const Lifetime& lifetime : block.lifetimes) {
      changes[lifetime.first] += aligned(block.size_bytes);
      changes[lifetime.last + 1] -= aligned(block.size_bytes);
    }
  }
  std::uint64_t now = 0, most = 0;
  for (const auto& [call, change] : changes) {
    now += change;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace troupe
