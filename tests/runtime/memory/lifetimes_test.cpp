#include "runtime/memory/lifetimes.hpp"

#include <gtest/gtest.h>

#include "runtime/base/random.hpp"

namespace troupe {
namespace {

/// Blocks as a step has them: most are alive for a short while, some from the forward pass to the backward pass.
std::vector<BlockLifetimes> random_blocks(std::uint64_t key) {
  constexpr std::uint32_t kCalls = 200;
  std::vector<BlockLifetimes> blocks(1 + random_below(key, 1, 150));
  std::uint64_t draw = 1;
  const auto below = [&](std::uint64_t limit) { return static_cast<std::uint32_t>(random_below(key, ++draw, limit)); };
  for (BlockLifetimes& block : blocks) {
    block.size_bytes = below(8) == 0 ? 0 : 1 + below(below(2) == 0 ? 100 : 100'000);
    for (std::uint32_t lifetimes = below(8) == 0 ? 0 : 1 + below(2), end = 0; lifetimes > 0; --lifetimes) {
      const std::uint32_t first = end + below(kCalls);
      block.lifetimes.push_back({first, first + below(below(3) == 0 ? kCalls : 5)});
      end = block.lifetimes.back().last + 1;
    }
  }
  return blocks;
}

bool is_used(const BlockLifetimes& block) { return block.size_bytes > 0 && !block.lifetimes.empty(); }

/// Whether both are alive during one of the calls, counted call by call.
bool are_alive_together(const BlockLifetimes& a, const BlockLifetimes& b) {
  const auto is_alive = [](const BlockLifetimes& block, std::uint32_t call) {
    for (const Lifetime& lifetime : block.lifetimes)
      if (call >= lifetime.first && call <= lifetime.last) return true;
    return false;
  };
  for (std::uint32_t call = 0; call < 4 * 200 + 2; ++call)
    if (is_alive(a, call) && is_alive(b, call)) return true;
  return false;
}

TEST(Lifetimes, BlocksThatAreAliveTogetherNeverShareAByte) {
  for (std::uint64_t key = 0; key < 60; ++key) {
    const std::vector<BlockLifetimes> blocks = random_blocks(key);
    const BlockOffsets places = share_by_lifetimes(blocks);
    ASSERT_EQ(places.offsets.size(), blocks.size());
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      if (!is_used(blocks[a])) continue;
      EXPECT_EQ(places.offsets[a] % BlockOffsets::kAlignment, 0U);
      EXPECT_LE(places.offsets[a] + blocks[a].size_bytes, places.size_bytes);
      for (std::size_t b = 0; b < a; ++b) {
        if (!is_used(blocks[b])) continue;
        const bool share_a_byte = places.offsets[a] < places.offsets[b] + blocks[b].size_bytes &&
                                  places.offsets[b] < places.offsets[a] + blocks[a].size_bytes;
        ASSERT_FALSE(share_a_byte && are_alive_together(blocks[a], blocks[b]))
            << "key " << key << ", blocks " << a << " and " << b;
      }
    }
  }
}

TEST(Lifetimes, TakeAtLeastWhatIsAliveAtOnceAndNotMuchMore) {
  std::uint64_t taken = 0, least = 0;
  for (std::uint64_t key = 0; key < 60; ++key) {
    const std::vector<BlockLifetimes> blocks = random_blocks(key);
    const std::uint64_t shared = share_by_lifetimes(blocks).size_bytes;
    EXPECT_GE(shared, most_alive(blocks)) << "key " << key;
    EXPECT_LE(shared, place_apart(blocks).size_bytes) << "key " << key;
    taken += shared;
    least += most_alive(blocks);
  }
  EXPECT_LE(static_cast<double>(taken), 1.2 * static_cast<double>(least));
}

TEST(Lifetimes, BlocksThatFollowOneAnotherLieInTheSamePlace) {
  const std::vector<BlockLifetimes> blocks{{1000, {{0, 3}}}, {900, {{4, 4}}}, {64, {{3, 4}}}, {1000, {{5, 9}}}};
  const BlockOffsets places = share_by_lifetimes(blocks);
  EXPECT_EQ(places.offsets, (std::vector<std::uint64_t>{0, 0, 1024, 0}));
  EXPECT_EQ(places.size_bytes, 1024U + 64U);
  EXPECT_EQ(most_alive(blocks), 1024U + 64U);
  EXPECT_EQ(place_apart(blocks).size_bytes, 1024U + 960U + 64U + 1024U);
}

TEST(Lifetimes, ABlockWithoutALifetimeOrWithoutBytesTakesNothing) {
  const std::vector<BlockLifetimes> blocks{{1000, {}}, {0, {{0, 5}}}};
  EXPECT_EQ(share_by_lifetimes(blocks).size_bytes, 0U);
  EXPECT_EQ(place_apart(blocks).size_bytes, 0U);
  EXPECT_EQ(most_alive(blocks), 0U);
}

}  // namespace
}  // namespace troupe
