#include "runtime/model/recomputation.hpp"

#include <gmock/gmock.h>

#include "runtime/base/error.hpp"
#include "runtime/model/layer_list.hpp"

namespace troupe {
namespace {

/// Blocks of two layers; the first one of each block puts out four times as much as the second.
Graph blocks() {
  LayerList net;
  for (int block = 1; block <= 6; ++block) {
    net.add(Dense{40}, {}, text("block_", block, ".wide"));
    net.add(Dense{10}, {}, text("block_", block, ".narrow"));
  }
  net.add(Dense{10}, {}, "block_10");
  return {"blocks", Shape{{10}}, DType::f32, net.finish()};
}

std::vector<LayerRange> ranges(const std::vector<std::string>& texts) { return recomputed_ranges(blocks(), texts); }

std::string refusal(const std::vector<std::string>& texts) {
  try {
    Graph graph = blocks();
    graph.recompute(recomputed_ranges(graph, texts));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Recomputation, TakesALayerOrAllLayersWhoseNamesBeginWithAWordAndADot) {
  EXPECT_EQ(ranges({"block_2"}), (std::vector<LayerRange>{{2, 3}}));
  EXPECT_EQ(ranges({"block_1"}), (std::vector<LayerRange>{{0, 1}}));  // not block_10
  EXPECT_EQ(ranges({"block_3.wide"}), (std::vector<LayerRange>{{4, 4}}));
  EXPECT_EQ(ranges({}), std::vector<LayerRange>{});
}

TEST(Recomputation, TakesARangeFromTheFirstLayerOfOneToTheLastOfAnother) {
  EXPECT_EQ(ranges({"block_4..block_5", "block_1..block_2.wide"}), (std::vector<LayerRange>{{0, 2}, {6, 9}}));
}

TEST(Recomputation, CutsSegmentsWhereFewElementsCrossAndKeepsTheLastOne) {
  EXPECT_EQ(ranges({"segments:3"}), (std::vector<LayerRange>{{0, 3}, {4, 7}}));
}

TEST(Recomputation, RefusesWhatNamesNoLayerOrOverlapsOrContainsTheLoss) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal({"block_7"}), HasSubstr("has no layer \"block_7\""));
  EXPECT_THAT(refusal({"block_1..block_3", "block_3"}), HasSubstr("is in two ranges"));
  EXPECT_THAT(refusal({"block_3..block_2"}), HasSubstr("are to be recomputed"));
  EXPECT_THAT(refusal({"block_10..loss"}), HasSubstr("is a loss, which cannot be recomputed"));
  EXPECT_THAT(refusal({"segments:1"}), HasSubstr("must be 2 to 13"));
  EXPECT_THAT(refusal({"segments:x"}), HasSubstr("must be 2 to 13"));
  EXPECT_THAT(refusal({"segments:2", "block_1"}), HasSubstr("leave one or the others out"));
}

TEST(Recomputation, CountsTheOperationsOfWhatIsNotKeptTwice) {
  Graph graph = blocks();
  const std::uint64_t before = graph.training_flops();
  graph.recompute({{2, 5}});  // the output of layer 5 is kept
  EXPECT_EQ(graph.training_flops(), before + graph.forward_flops(2) + graph.forward_flops(3) + graph.forward_flops(4));
}

}  // namespace
}  // namespace troupe
