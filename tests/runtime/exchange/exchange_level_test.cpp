#include "runtime/exchange/exchange_level.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/base/random.hpp"

namespace troupe {
namespace {

using Nodes = std::vector<std::vector<Rank>>;

TEST(ExchangeLevels, AreTheArenaOfOneNodeAndTheTransportOfNodesOfOneRank) {
  const Nodes one{{Rank{0}, Rank{1}}}, each{{Rank{1}}, {Rank{0}}}, pairs{{Rank{0}, Rank{1}}, {Rank{2}, Rank{3}}};
  EXPECT_EQ(exchange_levels(one, false), (std::vector<ExchangeLevel>{{LevelMeans::arena, {{Rank{0}, Rank{1}}}}}));
  EXPECT_EQ(exchange_levels(one, true), exchange_levels(one, false));
  EXPECT_EQ(exchange_levels(each, false), (std::vector<ExchangeLevel>{{LevelMeans::transport, {{Rank{0}, Rank{1}}}}}));
  EXPECT_EQ(exchange_levels(pairs, true),
            (std::vector<ExchangeLevel>{{LevelMeans::transport, {{Rank{0}, Rank{1}, Rank{2}, Rank{3}}}}}));
  EXPECT_EQ(name_of(exchange_levels(one, false)), "arena");
  EXPECT_EQ(name_of(exchange_levels(each, false)), "direct");
  EXPECT_EQ(name_of(exchange_levels(pairs, false)), "hierarchical");
  EXPECT_EQ(nccl_levels(pairs), (std::vector<ExchangeLevel>{{LevelMeans::nccl, exchange_levels(pairs, true)[0].sets}}));
  EXPECT_EQ(name_of(nccl_levels(pairs)), "nccl");
}

TEST(ExchangeLevels, OfSeveralNodesHaveARankOfEachNodeInEverySetOfCounterparts) {
  const Nodes uneven{{Rank{0}, Rank{2}, Rank{4}}, {Rank{1}, Rank{3}}};
  const auto levels = exchange_levels(uneven, false);
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_EQ(levels[0], (ExchangeLevel{LevelMeans::arena, uneven}));
  EXPECT_EQ(levels[1],
            (ExchangeLevel{LevelMeans::transport, {{Rank{0}, Rank{1}}, {Rank{2}, Rank{3}}, {Rank{4}, Rank{1}}}}));
  EXPECT_EQ(home_set(levels[1], Rank{1}), 0U) << "it stands in for another in the last set";
  EXPECT_EQ(home_set(levels[1], Rank{4}), 2U);
}

TEST(CounterpartGroups, HaveEveryStripeOfEveryBucketOnceTogether) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::uint64_t key = sub_key(seed, 1);
    Nodes nodes(2 + random_below(key, 0, 3));
    std::uint32_t ranks = 0;
    for (std::size_t n = 0; n < nodes.size(); ++n)
      for (std::uint64_t i = 0; i < 1 + random_below(key, 1 + n, 4); ++i) nodes[n].push_back(Rank{ranks++});
    std::vector<Bucket> buckets;
    std::vector<Stripe> stripes;
    std::uint64_t end = 0;
    for (std::uint32_t b = 0; b < 3; ++b) {
      const std::uint64_t count = 64 * (1 + random_below(key, 20 + b, 200));
      buckets.push_back({GroupId{}, b, end, count});
      for (Stripe stripe : equal_stripes(GroupId{}, count, ranks)) {
        stripe.first += end;
        stripes.push_back(stripe);
      }
      end += count;
    }
    const ExchangeLevel between{LevelMeans::transport, counterpart_sets(nodes)};
    std::map<std::uint64_t, std::uint64_t> found;  // first element, count
    for (std::size_t s = 0; s < between.sets.size(); ++s) {
      const CounterpartGroup group = counterpart_group(between, s, stripes, buckets);
      EXPECT_EQ(group.ranks.size(), nodes.size());
      for (std::size_t n = 0; n < nodes.size(); ++n)
        EXPECT_NE(std::find(nodes[n].begin(), nodes[n].end(), group.ranks[n]), nodes[n].end()) << "of another node";
      ASSERT_EQ(group.ranges.size(), buckets.size() * group.ranges_a_bucket);
      for (const Bucket& bucket : buckets) {
        for (const Bucket& range : group.ranges_of(bucket.index)) {
          EXPECT_EQ(&range - group.ranges.data(), range.index);
          EXPECT_GE(range.first, bucket.first);
          EXPECT_LE(range.first + range.count, bucket.first + bucket.count);
          const Stripe& stripe = group.stripes[range.index];
          EXPECT_EQ(stripe.first, range.first);
          EXPECT_EQ(stripe.count, range.count);
          EXPECT_EQ(home_set(between, group.ranks[stripe.owner.value]), s);
          if (range.count > 0) {
            EXPECT_TRUE(found.emplace(range.first, range.count).second) << "in two sets";
          }
        }
      }
    }
    std::uint64_t next = 0;
    for (const auto& [first, count] : found) {
      ASSERT_EQ(first, next) << "seed " << seed;
      next = first + count;
    }
    EXPECT_EQ(next, end);
  }
}

}  // namespace
}  // namespace troupe
