#include "runtime/compute/rules/verdict.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

Graph two_layers() {
  return Graph{"g",
               Shape{{5}},
               DType::f32,
               {{"hidden", Dense{7}}, {"r", Relu{}}, {"out", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
}

TEST(NoDecay, TakesTheParametersWhoseNamesMatchAPattern) {
  const Graph graph = two_layers();
  const Layout layout{graph};
  ASSERT_EQ(graph.parameters().size(), 4U);
  const auto starts = [&](const std::vector<std::string>& patterns) {
    std::vector<std::uint64_t> found;
    for (const Layout::Entry& entry : entries_matching(graph, layout, patterns)) found.push_back(entry.first);
    return found;
  };
  const auto& all = layout.entries();
  EXPECT_EQ(starts({"*.bias"}), (std::vector{all[1].first, all[3].first}));
  EXPECT_EQ(starts({"out.*", "*.bias"}), (std::vector{all[1].first, all[2].first, all[3].first}));
  EXPECT_EQ(starts({}), std::vector<std::uint64_t>{});
  EXPECT_THROW(starts({"*.biases"}), Error);
}

TEST(Verdict, EndsARunWhoseLossIsNotFiniteAndNamesTheRank) {
  const Graph graph = two_layers();
  const Layout layout{graph};
  EXPECT_TRUE(judge_step({}, Step{4}, {.loss = 3, .samples = 2}, graph, layout).ok());
  const Status end = judge_step({}, Step{4}, {.loss = NAN, .samples = 2, .bad_loss = 3}, graph, layout);
  EXPECT_EQ(end.text().find("step 4: the loss, first at rank 2 is not finite; lower optimizer.rate"), 0U) << end.text();
}

TEST(Verdict, GoesOnAfterALeftOutStepOnlyWhereTheyMayBeSkipped) {
  const Graph graph = two_layers();
  const Layout layout{graph};
  const std::uint64_t bad = bad_at(layout.entries()[1].first + 2, 1);
  const StepSums total{.loss = NAN, .samples = 8, .gradient_squares = NAN, .bad_gradient = bad, .bad_loss = 2};
  const Rule skips{.skips_non_finite = true}, clips{.clip_norm = 1};
  EXPECT_TRUE(is_skipped(skips, total));
  EXPECT_TRUE(judge_step(skips, Step{4}, total, graph, layout).ok());
  EXPECT_EQ(describe_bad(total, graph, layout), "the gradient of hidden.bias, first at rank 1");
  EXPECT_TRUE(is_skipped(clips, total));
  const Status end = judge_step(clips, Step{4}, total, graph, layout);
  EXPECT_NE(end.text().find("hidden.bias, first at rank 1 is not finite (the parameters are those of the step before)"),
            std::string_view::npos)
      << end.text();
  EXPECT_FALSE(is_skipped(clips, {.loss = 1, .samples = 8, .gradient_squares = 9}));
  EXPECT_FALSE(is_skipped({}, total));
}

}  // namespace
}  // namespace troupe
