#include "runtime/model/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/base/error.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

Graph small(std::uint32_t classes = 3) {
  return Graph{
      "g",
      Shape{{5}},
      DType::f32,
      {{"a", Dense{7}}, {"r", Relu{}}, {"b", Dense{20}}, {"c", Dense{classes}}, {"loss", SoftmaxCrossEntropy{}}}};
}

TEST(Layout, PutsEveryParameterOnAMultipleOfSixtyFourBytes) {
  const Graph graph = small();
  const Layout layout{graph};
  std::uint64_t end = 0;
  ASSERT_EQ(layout.entries().size(), graph.parameters().size());
  for (std::size_t i = 0; i < layout.entries().size(); ++i) {
    const Layout::Entry entry = layout.entries()[i];
    EXPECT_EQ(entry.first % Layout::kAlignElements, 0U);
    EXPECT_GE(entry.first, end);
    EXPECT_LT(entry.first - end, Layout::kAlignElements);
    EXPECT_EQ(entry.count, graph.parameters()[i].count_elements());
    end = entry.first + entry.count;
  }
  EXPECT_EQ(layout.count_elements() % Layout::kAlignElements, 0U);
  EXPECT_GE(layout.count_elements(), end);
}

TEST(Layout, FillsStartingWeightsWithTheGraphsDeviationAndLeavesBiasesAndGapsZero) {
  const Graph graph{"g", Shape{{100}}, DType::f32, {{"a", Dense{201}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Layout layout{graph};
  std::vector<float> values(layout.count_elements(), 5.0F);
  fill_initial(graph, layout, 7, values);
  const Layout::Entry weights = layout.entries()[0];
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < weights.count; ++i) {
    sum += values[i];
    squares += static_cast<double>(values[i]) * values[i];
  }
  const auto count = static_cast<double>(weights.count);
  EXPECT_NEAR(sum / count, 0, 0.003);
  EXPECT_NEAR(std::sqrt(squares / count), 0.1, 0.002);
  for (std::uint64_t i = weights.count; i < values.size(); ++i) EXPECT_EQ(values[i], 0.0F) << i;
}

TEST(Layout, FillsTheSameWeightsForTheSameSeedAndParameterWhateverComesAfter) {
  std::vector<float> three(Layout{small(3)}.count_elements()), nine(Layout{small(9)}.count_elements());
  fill_initial(small(3), Layout{small(3)}, 11, three);
  fill_initial(small(9), Layout{small(9)}, 11, nine);
  for (std::size_t i = 0; i < 35; ++i) EXPECT_EQ(three[i], nine[i]);
  const std::vector<float> before = three;
  fill_initial(small(3), Layout{small(3)}, 12, three);
  EXPECT_NE(three, before);
}

TEST(Layout, RefusesABufferOfAnotherSize) {
  std::vector<float> values(3);
  EXPECT_THROW(fill_initial(small(), Layout{small()}, 1, values), Error);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(to_bf16(from_bf16(0x4049)), 0x4049);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F), 0x3f80);             // a tie goes to the even neighbour below
  EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82);         // and to the one above
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);  // above the tie
  EXPECT_EQ(to_bf16(-1.0F - 3 * 0x1p-8F), 0xbf82);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
}

TEST(Bf16, KeepsNanAndInfinity) {
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::signaling_NaN()))));
  EXPECT_EQ(from_bf16(to_bf16(-std::numeric_limits<float>::infinity())), -std::numeric_limits<float>::infinity());
}

TEST(BatchLayout, PutsEachFieldOnACacheLine) {
  const BatchLayout batch{3,
                          {{"image", {{5}}, DType::bf16}, {"boxes", {{2, 4}}, DType::f32}, {"label", {}, DType::i32}}};
  EXPECT_EQ(batch.entry("image").offset, 0U);
  EXPECT_EQ(batch.entry("boxes").offset, 64U);
  EXPECT_EQ(batch.entry("boxes").row_bytes(), 32U);
  EXPECT_EQ(batch.entry("label").offset, 192U);
  EXPECT_EQ(batch.size_bytes(), 256U);
  EXPECT_EQ((BatchLayout{100, {{"image", {{784}}, DType::f32}, {"label", {}, DType::i32}}}.size_bytes()),
            313600U + 448);
}

TEST(BatchLayout, WithoutFieldsStillHasAPlace) { EXPECT_EQ((BatchLayout{100, {}}.size_bytes()), 64U); }

TEST(BatchLayout, NamesTheFieldsThatItHas) {
  const BatchLayout batch{3, {{"image", {{5}}, DType::f32}, {"label", {}, DType::i32}}};
  EXPECT_THAT(testing::error_of(Code::invalid, [&] { batch.entry("mask"); }),
              ::testing::HasSubstr("a batch has no field \"mask\"; it has image [5] f32, label [] i32"));
  const Graph graph{"g", Shape{{6}}, DType::f32, {{"a", Dense{2}}, {"loss", SoftmaxCrossEntropy{}}}};
  EXPECT_THAT(
      testing::error_of(Code::invalid, [&] { batch.check_fits(graph); }),
      ::testing::HasSubstr("graph g takes rows of image [6] f32, label [] i32, the batch has 3 rows of image [5] f32"));
}

TEST(Stripes, CoverTheGroupInWholeBlocksOfNearlyEqualSize) {
  for (const std::uint64_t count :
       {std::uint64_t{1800000}, std::uint64_t{1024}, std::uint64_t{5008}, std::uint64_t{16}}) {
    for (std::uint32_t ranks = 1; ranks < 9; ++ranks) {
      const std::vector<Stripe> stripes = equal_stripes(GroupId{2}, count, ranks);
      ASSERT_EQ(stripes.size(), ranks);
      std::uint64_t first = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const Stripe& stripe = stripes[rank];
        EXPECT_EQ(stripe.group, GroupId{2});
        EXPECT_EQ(stripe.owner, Rank{rank});
        EXPECT_EQ(stripe.first, first);
        EXPECT_LT(stripe.count, count / ranks + 2048);
        EXPECT_TRUE(stripe.first + stripe.count == count || stripe.count % 1024 == 0);
        first += stripe.count;
      }
      EXPECT_EQ(first, count);
    }
  }
}

TEST(Stripes, OfNoRanksAreRefused) { EXPECT_THROW(equal_stripes(GroupId{}, 10, 0), Error); }

/// Weights in group 0, biases in group 1.
std::vector<GroupId> biases_apart() { return {{0}, {1}, {0}, {1}, {0}, {1}}; }

TEST(Layout, PutsAGroupsParametersTogetherAndLeavesTheirStartingWeightsAsTheyWere) {
  const Graph graph = small();  // a: 48 + 16 elements, b: 144 + 32, c: 64 + 16
  const Layout one{graph}, two{graph, biases_apart()};
  ASSERT_EQ(two.groups().size(), 2U);
  EXPECT_EQ(two.groups()[0].first, 0U);
  EXPECT_EQ(two.groups()[0].count, 48U + 144 + 64);
  EXPECT_EQ(two.groups()[1].first, 256U);
  EXPECT_EQ(two.groups()[1].count, 16U + 32 + 16);
  EXPECT_EQ(two.count_elements(), one.count_elements());
  std::vector<float> of_one(one.count_elements()), of_two(two.count_elements());
  fill_initial(graph, one, 5, of_one);
  fill_initial(graph, two, 5, of_two);
  for (std::size_t p = 0; p < one.entries().size(); ++p) {
    EXPECT_EQ(two.group_of(p), biases_apart()[p]);
    for (std::uint64_t i = 0; i < one.entries()[p].count; ++i)
      ASSERT_EQ(of_two[two.entries()[p].first + i], of_one[one.entries()[p].first + i]);
  }
}

TEST(Layout, RefusesAGroupWithoutParameters) {
  const std::vector<GroupId> skips{{0}, {2}, {0}, {2}, {0}, {2}};
  EXPECT_THROW((Layout{small(), skips}), Error);
  EXPECT_THROW((Layout{small(), std::vector<GroupId>{{0}}}), Error);
}

TEST(Buckets, AreOneForTheWholeGroupWithoutATarget) {
  const Graph graph = small();
  const Layout layout{graph, biases_apart()};
  EXPECT_EQ(make_buckets(GroupId{0}, graph, layout, 0), (std::vector<Bucket>{{GroupId{0}, 0, 0, 256, 0}}));
  EXPECT_EQ(make_buckets(GroupId{1}, graph, layout, 0), (std::vector<Bucket>{{GroupId{1}, 0, 0, 64, 256}}));
}

TEST(Buckets, OfSeveralGroupsFollowTheBackwardPass) {
  const Graph graph = small();
  const Layout layout{graph, biases_apart()};
  std::vector<Bucket> all = make_buckets(GroupId{1}, graph, layout, 1);
  const std::vector<Bucket> weights = make_buckets(GroupId{0}, graph, layout, 200 * sizeof(float));
  ASSERT_EQ(all.size(), 3U);
  ASSERT_EQ(weights.size(), 2U);  // c and b, then a
  all.insert(all.end(), weights.begin(), weights.end());
  EXPECT_EQ(in_backward_order(graph, layout, all),
            (std::vector<Bucket>{all[0], all[1], weights[0], all[2], weights[1]}));
}

TEST(Buckets, GatherWholeLayersFromTheLastToTheFirstUntilTheTargetIsReached) {
  const Graph graph = small();  // a: 48 + 16 elements, b: 144 + 32, c: 64 + 16
  const Layout layout{graph};
  ASSERT_EQ(layout.count_elements(), 320U);
  EXPECT_EQ(make_buckets(GroupId{}, graph, layout, 1),
            (std::vector<Bucket>{{GroupId{}, 0, 240, 80}, {GroupId{}, 1, 64, 176}, {GroupId{}, 2, 0, 64}}));
  EXPECT_EQ(make_buckets(GroupId{}, graph, layout, 81 * sizeof(float)),
            (std::vector<Bucket>{{GroupId{}, 0, 64, 256}, {GroupId{}, 1, 0, 64}}));
  EXPECT_EQ(make_buckets(GroupId{}, graph, layout, 1 << 20), (std::vector<Bucket>{{GroupId{}, 0, 0, 320}}));
}

}  // namespace
}  // namespace troupe
