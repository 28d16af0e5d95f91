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

/// Finds the smallest gap that has room for a number of bytes, and of equal gaps the first.
class SmallestGap {
 public:
  explicit SmallestGap(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}
  /// Ranges that are taken, by their first bytes.
  void pass(const Taken& range) noexcept {
    const std::uint64_t gap = range.first > end_ ? range.first - end_ : 0;
    if (gap >= size_bytes_ && gap < best_size_) {
      best_ = end_;
      best_size_ = gap;
    }
    end_ = std::max(end_, range.end);
  }
  std::uint64_t offset() const noexcept { return best_size_ == kNone ? end_ : best_; }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  const std::uint64_t size_bytes_;  // not 0
  std::uint64_t best_ = 0, best_size_ = kNone, end_ = 0;
};

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
  for (const std::size_t index : order) {
    const BlockLifetimes& block = blocks[index];
    if (!needs_memory(block)) continue;
    Placed next{{}, span_of(block), block.lifetimes.size() == 1, &block};
    const std::uint64_t size = aligned(block.size_bytes);
    SmallestGap gap{size};
    for (const Placed& other : placed)
      if (overlap(next, other)) gap.pass(other.range);
    places.offsets[index] = gap.offset();
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
