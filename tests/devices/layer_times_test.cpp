#include "devices/cpu/layer_times.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "devices/cpu/kernels/norms.hpp"
#include "devices/cpu/try_threads.hpp"
#include "runtime/model/layer_list.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kRows = 4, kRounds = 2;

/// Each kind of layer that oneDNN has primitives for, and a sum, for which it has none here.
Graph several_kinds(DType dtype) {
  LayerList net;
  net.add(Conv2d{.filters = 20, .kernel = {5, 5}});
  net.add(Tanh{});
  net.add(MaxPool{});
  const std::string norm = net.add(BatchNorm{});
  const std::string relu = net.add(Relu{}, {norm});
  net.add(Add{}, {relu, norm});
  net.add(Conv2d{.filters = 6, .kernel = {3, 3}, .groups = 2});
  net.add(AveragePool{});
  net.add(Dense{16});
  net.add(LayerNorm{});
  net.add(Gelu{});
  net.add(Dense{10});
  return {"several", Shape{{28, 28, 1}}, dtype, net.finish()};
}

class LayerTimes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EveryType, LayerTimes, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string{name_of(info.param)}; });

TEST_P(LayerTimes, AreThoseOfEachLayerThatIsNoPartOfAnother) {
  const StepTimes times = measure_layers(several_kinds(GetParam()), kRows, 1, kRounds);
  std::vector<std::string> forward, backward;
  for (const LayerTime& time : times.layers) (time.backward ? backward : forward).push_back(time.layer);
  EXPECT_THAT(forward, ::testing::ElementsAre("conv2d_1", "max_pool_1", "batch_norm_1", "relu_1", "add_1", "conv2d_2",
                                              "average_pool_1", "dense_1", "layer_norm_1", "gelu_1", "dense_2"));
  std::ranges::reverse(backward);
  EXPECT_EQ(backward, forward);
  EXPECT_EQ(times.us.size(), kRounds);
}

TEST_P(LayerTimes, AreThoseOfTheLayersThatAreAskedForAlone) {
  const StepTimes times = measure_layers(several_kinds(GetParam()), kRows, 1, kRounds, "conv2d");
  std::vector<std::string> layers;
  for (const LayerTime& time : times.layers) layers.push_back(time.layer);
  EXPECT_THAT(layers, ::testing::ElementsAre("conv2d_1", "conv2d_2", "conv2d_2", "conv2d_1"));
  EXPECT_TRUE(times.us.empty()) << "no whole step is measured";
}

TEST_P(LayerTimes, HaveTheOperationsOfAStepAsTheGraphCountsThem) {
  const Graph graph = several_kinds(GetParam());
  const StepTimes times = measure_layers(graph, kRows, 1, kRounds);
  const auto sum = std::accumulate(times.layers.begin(), times.layers.end(), std::uint64_t{0},
                                   [](std::uint64_t flops, const LayerTime& time) { return flops + time.flops; });
  EXPECT_EQ(sum, kRows * graph.training_flops());
}

TEST_P(LayerTimes, NameTheBestPrimitivesOfAllLayersThatOnednnHas) {
  for (const LayerTime& time : measure_layers(several_kinds(GetParam()), kRows, 1, kRounds).layers) {
    SCOPED_TRACE(time.layer + (time.backward ? " backward" : " forward"));
    EXPECT_EQ(time.us.size(), kRounds);
    EXPECT_THAT(time.us, ::testing::Each(::testing::Gt(0.0)));
    const bool known = time.kind != "add";
    EXPECT_EQ(time.best_us.size(), known ? kRounds : 0U);
    EXPECT_THAT(time.best_us, ::testing::Each(::testing::Gt(0.0)));
    EXPECT_EQ(time.best.empty(), !known);
    EXPECT_EQ(time.best.find("ref"), time.best.npos) << time.best;
    const auto primitives = 1 + std::ranges::count(time.best, '+');
    if (time.layer == "conv2d_1") {
      EXPECT_EQ(primitives, 1) << "nobody needs the gradient to the image";
    }
    if (time.layer == "conv2d_2" || time.kind == "dense") {
      EXPECT_EQ(primitives, time.backward ? 2 : 1);
    }
    if (time.layer == "relu_1") {
      EXPECT_EQ(primitives, time.backward ? 2 : 1) << "the gradient is added to that of the sum's other input";
    }
    if (time.kind == "max_pool") {
      EXPECT_EQ(primitives, time.backward ? 1 : 2) << "the tanh before it is applied to its output";
    }
  }
}

TEST_P(LayerTimes, OfABatchNormHaveTheSumBehindIt) {
  if (cpu::usable_norm_kernels().empty()) GTEST_SKIP() << "oneDNN computes batch norms on this processor";
  LayerList net;
  net.add(Conv2d{.filters = 16, .kernel = {3, 3}, .padding = {1, 1}});
  const std::string stream = net.add(Relu{});
  net.add(Conv2d{.filters = 16, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(BatchNorm{});
  net.add(Add{}, {net.last(), stream});
  net.add(Relu{});
  net.add(Dense{10});
  const Graph graph{"residual", Shape{{8, 8, 3}}, GetParam(), net.finish()};
  std::vector<std::string> layers;
  for (const LayerTime& time : measure_layers(graph, kRows, 1, 1).layers) {
    if (!time.backward) layers.push_back(time.layer);
    if (time.kind != "batch_norm") continue;
    // Backward the sum is only copied: nothing but the norm has to be computed.
    EXPECT_EQ(1 + std::ranges::count(time.best, '+'), time.backward ? 1 : 2) << time.best;
  }
  EXPECT_THAT(layers, ::testing::ElementsAre("conv2d_1", "conv2d_2", "batch_norm_1", "dense_1"));
}

TEST_P(LayerTimes, ATrialOfThreadsTakesStepsOnEachNumberAndChoosesOne) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not see the barriers of OpenMP's threads";
#endif
  const ThreadTrial trial = try_threads(several_kinds(GetParam()), kRows, 2);
  ASSERT_EQ(trial.tried.size(), 2U);
  EXPECT_EQ(trial.tried[0].threads, 2U);
  EXPECT_EQ(trial.tried[1].threads, 1U);
  for (const ThreadTrial::Tried& tried : trial.tried) EXPECT_GT(tried.step_s, 0);
  EXPECT_THAT(trial.chosen, ::testing::AnyOf(1U, 2U));
  EXPECT_EQ(trial.rows, kRows);
}

TEST_P(LayerTimes, ATrialOfALargeModelTakesFewerSamples) {
  LayerList net;
  net.add(Dense{2000});
  net.add(Dense{10});
  const Graph graph{"large", Shape{{1000}}, GetParam(), net.finish()};
  const std::uint64_t flops = 4'000'000'000;
  EXPECT_EQ(try_threads(graph, 100'000, 1).rows, flops / graph.training_flops());
}

}  // namespace
}  // namespace troupe
