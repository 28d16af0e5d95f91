// Predicted steps of ranks on GPUs, from round figures.

#include <gmock/gmock.h>

#include "runtime/planning/cost_model.hpp"
#include "tests/runtime/planning/placed_nodes.hpp"

namespace troupe {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace troupe::testing;
using topology::ComputeFigure;
using topology::GpuFigure;
using topology::GpuLinkFigure;

topology::Repeats exactly(double value) { return {value, value, value}; }
constexpr double kFast = 1e24;  // so fast that it takes no time

/// One layer of 4,096 weights and 64 biases, which no padding follows.
Graph one_layer(DType dtype = DType::f32) {
  return {"one", Shape{{64}}, dtype, {{"fc", Dense{64}}, {"loss", SoftmaxCrossEntropy{}}}};
}
constexpr double kElements = 64 * 64 + 64;
/// Forward and gradient to the weights: the input needs none.
constexpr double kFlops = 2 * 2 * 64 * 64 * 100.0;

ComputeFigure products(const char* dtype, double rate) {
  return {.dtype = dtype, .rows = 100, .units = 64, .flops_per_second = exactly(rate), .layers = 1};
}

/// GPUs of which everything takes no time, and the links between them.
CostFigures fast_figures(std::uint32_t gpus) {
  CostFigures figures;
  topology::Measurements& measured = figures.measured;
  measured.date = "2026-01-31T09:05:00Z";
  measured.host = "here";
  measured.copies = {{0, 0, 1, 1 << 20, exactly(kFast)}};
  const auto bus = [](std::uint32_t number) { return text("0000:1", number, ":00.0"); };
  const auto link = [&](const std::string& from, const std::string& to) {
    measured.gpu_links.push_back(
        {.from = from, .to = to, .bytes = 1 << 20, .seconds = exactly(0), .bytes_per_second = exactly(kFast)});
  };
  for (std::uint32_t g = 0; g < gpus; ++g) {
    GpuFigure& gpu = measured.gpus.emplace_back();
    gpu.bus = bus(g), gpu.model = "H100", gpu.products = "cuBLASLt 13.1.0";
    gpu.bytes_per_second = exactly(kFast);
    gpu.compute = {products("f32", kFast), products("tf32", kFast), products("bf16", kFast)};
    gpu.own = {products("f32", kFast), products("bf16", kFast)};
    link(GpuLinkFigure::kHost, bus(g)), link(bus(g), GpuLinkFigure::kHost);
    for (std::uint32_t other = 0; other < gpus; ++other)
      if (other != g) link(bus(g), bus(other));
  }
  figures.assumed = assumed_figures(made_node("here"));
  return figures;
}

struct GpuJob {
  Settings settings{};
  std::vector<std::uint32_t> ranks{1};  // by node
  std::uint32_t gpus = 1;               // of each node
  std::uint64_t steps = 8;

  Plan plan(const Graph& graph) const {
    std::vector<Topology> nodes;
    for (std::size_t n = 0; n < ranks.size(); ++n) {
      nodes.push_back(with_gpus(text("n", n), {0, 1}));
      nodes.back().accelerators.resize(gpus);
      nodes.back().nics = {made_nic("ib0", 0, {}, "mlx5_0")};
    }
    return make_plan(settings, graph, inputs_on(nodes, ranks));
  }
  Prediction predicted(const CostFigures& figures, const Graph& graph = one_layer()) const {
    return predict(plan(graph), graph, layout_of(settings, graph), figures, steps);
  }
};

GpuJob sgd_job() {
  GpuJob job;
  job.settings.rule.kind = RuleKind::sgd;
  job.settings.data.batch = 100;
  job.settings.placement.device = "cuda";
  return job;
}

TEST(GpuCosts, ProductsTakeTheirOperationsAtTheRateOfTheirTypeAndOfWhatComputesThem) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].compute = {products("f32", 1e9), products("tf32", 4e9), products("bf16", 8e9)};
  figures.measured.gpus[0].own = {products("f32", 5e8), products("bf16", 5e8)};
  const GpuJob job = sgd_job();
  const auto compute_s = [&](const Graph& graph) { return job.predicted(figures, graph).mean[StepPart::compute]; };
  EXPECT_DOUBLE_EQ(compute_s(one_layer()), kFlops / 1e9);
  EXPECT_DOUBLE_EQ(compute_s(one_layer(DType::bf16)), kFlops / 8e9);
  figures.tf32 = true;
  EXPECT_DOUBLE_EQ(compute_s(one_layer()), kFlops / 4e9);
  EXPECT_DOUBLE_EQ(compute_s(one_layer(DType::bf16)), kFlops / 8e9);
  figures.measured.gpus[0].compute.clear();
  EXPECT_DOUBLE_EQ(compute_s(one_layer()), kFlops / 5e8) << "without a library";
}

TEST(GpuCosts, ConvolutionsOfSeveralPixelsCountAsProductsWhichIsAGuess) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].own = {products("f32", 1e9)};
  const auto step = [&](std::uint32_t side) {
    const Graph graph{"conv",
                      Shape{{8, 8, 4}},
                      DType::f32,
                      {{"conv", Conv2d{.filters = 4, .kernel = {side, side}}}, {"loss", SoftmaxCrossEntropy{}}}};
    return sgd_job().predicted(figures, graph).mean;
  };
  EXPECT_FALSE(step(1).is_modelled()) << "a product of matrices, by the library that was measured";
  EXPECT_TRUE(step(3).is_modelled()) << "by another library";
  EXPECT_LT(step(3)[StepPart::compute], 1e-12);
  figures.measured.gpus[0].compute.clear();
  EXPECT_DOUBLE_EQ(step(3)[StepPart::compute], 2 * 2 * 9.0 * 4 * 4 * 6 * 6 * 100 / 1e9) << "without libraries";
}

TEST(GpuCosts, ALayerTakesTheLongestOfOperationsBytesAndKernels) {
  CostFigures figures = fast_figures(1);
  const GpuJob job = sgd_job();
  const auto compute_s = [&] { return job.predicted(figures).mean[StepPart::compute]; };
  figures.measured.gpus[0].bytes_per_second = exactly(1e9);
  // Values of 100 rows: input and output of each pass and weights; backward also the gradients to the weights. The loss
  // reads logits and labels, and writes as much.
  const double values = 4 * 64 * 100.0, weights = 4 * kElements, labels = 4 * 100.0;
  const double bytes_s = (2 * values + weights + 2 * values + 2 * weights + 2 * (values + labels)) / 1e9;
  EXPECT_DOUBLE_EQ(compute_s(), bytes_s);
  figures.measured.gpus[0].kernel_seconds = exactly(1e-3);
  EXPECT_DOUBLE_EQ(compute_s(), 7e-3) << "one for the batch, one forward, four backward, one for the loss";
  figures.measured.gpus[0].compute = {products("f32", kFlops)};
  EXPECT_NEAR(compute_s(), 1 + 2e-3, 1e-9) << "half of a second forward, half backward";
}

TEST(GpuCosts, AStepTakesAtLeastTheLaunchOfItsProgramAndTheBatchComesFromTheHost) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpu_links[0].bytes_per_second = exactly(1e6);
  const GpuJob job = sgd_job();
  const double batch_s = (64 * 4 + 4) * 100 / 1e6;
  EXPECT_NEAR(job.predicted(figures).mean[StepPart::compute], batch_s, 1e-12);
  figures.measured.gpus[0].launch_seconds = exactly(1);
  EXPECT_NEAR(job.predicted(figures).mean[StepPart::compute], 1, 1e-12);
}

TEST(GpuCosts, TheUpdateIsAPassOverTheGpusMemory) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].bytes_per_second = exactly(1e9);
  GpuJob job = sgd_job();
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::update], kElements * 3 * 4 / 1e9);
  job.settings.update.kind = PolicyKind::async;  // trains in the host's memory
  figures.measured.gpu_links[0].bytes_per_second = exactly(1e8);
  EXPECT_GE(job.predicted(figures).mean[StepPart::update], kElements * 3 * 4 / 1e8);
}

TEST(GpuCosts, RanksThatShareAGpuTakeTurns) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].compute = {products("f32", 1e9)};
  GpuJob job = sgd_job();
  job.ranks = {2};
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::compute], 2 * kFlops / 1e9);
}

TEST(GpuCosts, NcclSendsEachByteTwiceOverTheSlowestLinkOfARing) {
  CostFigures figures = fast_figures(2);
  for (GpuLinkFigure& link : figures.measured.gpu_links)
    if (link.from == "0000:11:00.0" && link.to == "0000:10:00.0") link.bytes_per_second = exactly(1e9);
  GpuJob job = sgd_job();
  job.ranks = {2}, job.gpus = 2;
  ASSERT_TRUE(job.plan(one_layer()).uses_nccl());
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::exchange], 2 * 0.5 * kElements * 4 / 1e9);
  for (GpuLinkFigure& link : figures.measured.gpu_links)
    if (link.from != GpuLinkFigure::kHost && link.to != GpuLinkFigure::kHost) link.seconds = exactly(1e-3);
  EXPECT_NEAR(job.predicted(figures).mean[StepPart::exchange], 2 * 0.5 * kElements * 4 / 1e9 + 2e-3, 1e-9);
}

TEST(GpuCosts, BetweenNodesTheSlowestEdgeIsTheNetworkAndTheRankOrderSendsMore) {
  CostFigures figures = fast_figures(2);
  figures.measured.messages = {
      {.means = "network", .same_node = false, .seconds = exactly(0), .bytes_per_second = exactly(1e9)}};
  GpuJob job = sgd_job();
  job.ranks = {2, 2}, job.gpus = 2;
  const double bytes = kElements * 4;
  ASSERT_TRUE(job.plan(one_layer()).nccl_adds);
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::exchange], 2 * 0.75 * bytes / 1e9);
  job.settings.train.deterministic = true;
  // Two GPUs of a node send half of their gradients to the other node, each.
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::exchange], (2 * 0.5 + 0.75) * bytes / 1e9);
}

TEST(GpuCosts, NcclWithinNodesSendsEachSumBetweenThemOnce) {
  CostFigures figures = fast_figures(2);
  figures.measured.messages = {
      {.means = "network", .same_node = false, .seconds = exactly(0), .bytes_per_second = exactly(1e9)}};
  GpuJob job = sgd_job();
  job.ranks = {2, 2}, job.gpus = 2;
  job.settings.train.deterministic = true;
  const double by_all = job.predicted(figures).mean[StepPart::exchange];
  job.settings.cluster.collectives = "nccl_in_nodes";
  ASSERT_EQ(name_of(job.plan(one_layer()).levels), "nccl_in_nodes");
  const double by_node = job.predicted(figures).mean[StepPart::exchange];
  EXPECT_LT(by_node, by_all);
  // Half of the gradients and half of the parameters over each link between the GPUs of a node.
  for (GpuLinkFigure& link : figures.measured.gpu_links)
    if (link.from != GpuLinkFigure::kHost && link.to != GpuLinkFigure::kHost) link.bytes_per_second = exactly(1e8);
  EXPECT_GT(job.predicted(figures).mean[StepPart::exchange], by_node + 2 * 0.5 * kElements * 4 / 1e8 * 0.99);
}

TEST(GpuCosts, RoundsBesideTheNextStepCostWhatItDoesNotCover) {
  CostFigures figures = fast_figures(2);
  for (GpuLinkFigure& link : figures.measured.gpu_links) link.bytes_per_second = exactly(1e9);
  figures.measured.gpus[0].compute = figures.measured.gpus[1].compute = {products("f32", kFlops)};
  GpuJob job = sgd_job();
  job.ranks = {2}, job.gpus = 2;
  job.settings.update.kind = PolicyKind::double_buffered;
  const Prediction found = job.predicted(figures);
  EXPECT_GT(found.mean[StepPart::compute], 0.9);
  const double round_s = 2 * 0.5 * kElements * 4 / 1e9;
  EXPECT_NEAR(found.mean[StepPart::exchange], round_s / 8, 1e-12)
      << "the last of eight steps waits for its round; a second of computing covers the others";
}

TEST(GpuCosts, OwnCollectivesReadTheOthersGradientsAndTheFirstRanksWeightsOverTheLink) {
  CostFigures figures = fast_figures(2);
  for (GpuLinkFigure& link : figures.measured.gpu_links)
    if (link.from == "0000:10:00.0" && link.to == "0000:11:00.0") link.bytes_per_second = exactly(1e6);
  GpuJob job = sgd_job();
  job.ranks = {2}, job.gpus = 2;
  job.settings.cluster.collectives = "own";
  const Prediction found = job.predicted(figures);
  EXPECT_NEAR(found.mean[StepPart::compute], 2 * kElements * 4 / 1e6, 1e-9) << "forward and backward";
  EXPECT_NEAR(found.mean[StepPart::update], 3072 * 4 / 1e6, 1e-9) << "of the larger stripe";
}

TEST(GpuCosts, WhatRestsOnMeasuredFiguresHasNoMark) {
  GpuJob job = sgd_job();
  job.ranks = {2}, job.gpus = 2;
  const Prediction found = job.predicted(fast_figures(2));
  EXPECT_FALSE(found.mean.is_modelled());
  EXPECT_THAT(found.figures, Not(IsEmpty()));
  EXPECT_THAT(found.figures, Each(Field(&UsedFigure::is_modelled, false)));
  EXPECT_THAT(found.basis, Contains(HasSubstr("Figures of H100, cuBLASLt 13.1.0, by rttopo bench on here")));
  EXPECT_THAT(describe(found), Not(HasSubstr("~")));
}

TEST(GpuCosts, PartsThatRestOnModelledFiguresAreMarkedAndNoOthers) {
  CostFigures figures = fast_figures(2);
  std::erase_if(figures.measured.gpu_links,
                [](const GpuLinkFigure& link) { return link.from == "0000:10:00.0" && link.to == "0000:11:00.0"; });
  GpuJob job = sgd_job();
  job.ranks = {2}, job.gpus = 2;
  const Prediction found = job.predicted(figures);
  EXPECT_THAT(found.mean.modelled, ElementsAre(false, false, false, false, true));
  EXPECT_THAT(found.figures, Contains(Field(&UsedFigure::what, HasSubstr("slowest link"))));
  EXPECT_THAT(describe(found), HasSubstr("exchange ~"));
  EXPECT_THAT(describe(found), HasSubstr("modelled"));
  MeasuredSteps measured{.steps = 1, .step_s = 1, .has_parts = true};
  EXPECT_THAT(compare(found, measured), HasSubstr("~: modelled"));
}

TEST(GpuCosts, ATypeThatWasNotMeasuredIsTakenAsF32AndMarked) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].compute = {products("f32", 1e9)};
  const Prediction found = sgd_job().predicted(figures, one_layer(DType::bf16));
  EXPECT_DOUBLE_EQ(found.mean[StepPart::compute], kFlops / 1e9);
  EXPECT_THAT(found.mean.modelled, ElementsAre(false, true, false, false, false));
  EXPECT_THAT(found.basis, Contains(HasSubstr("Products in bf16 were not measured on a GPU")));
}

TEST(GpuCosts, F16IsTakenAsBf16AndMarked) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].compute = {products("f32", 1e9), products("bf16", 8e9)};
  const Prediction of_bf16 = sgd_job().predicted(figures, one_layer(DType::bf16));
  const Prediction of_f16 = sgd_job().predicted(figures, one_layer(DType::f16));
  EXPECT_DOUBLE_EQ(of_f16.mean[StepPart::compute], of_bf16.mean[StepPart::compute]);
  EXPECT_THAT(of_bf16.mean.modelled, Each(false));
  EXPECT_THAT(of_f16.mean.modelled, ElementsAre(false, true, false, false, false));
}

TEST(GpuCosts, AGpuOfAnotherModelThanTheMeasuredOneIsModelled) {
  CostFigures figures = fast_figures(1);
  figures.measured.gpus[0].model = "A100";
  figures.assumed.gpus.clear();
  const Prediction found = sgd_job().predicted(figures);
  EXPECT_TRUE(found.mean.modelled[static_cast<std::size_t>(StepPart::compute)]);
  EXPECT_TRUE(found.mean.modelled[static_cast<std::size_t>(StepPart::update)]);
  EXPECT_GT(found.mean[StepPart::compute], 0);
  EXPECT_THAT(found.basis, Contains(HasSubstr("No figures of H100")));
}

TEST(GpuCosts, OfGpusAndCoresTheSlowerOnesAreWaitedFor) {
  CostFigures figures = fast_figures(1);
  figures.measured.compute = {products("f32", 1e6)};
  figures.measured.messages = {{.means = "shm", .seconds = exactly(0), .bytes_per_second = exactly(kFast)},
                               {.means = "tcp", .seconds = exactly(0), .bytes_per_second = exactly(kFast)}};
  PlanInputs inputs = inputs_on({with_gpus("a", {0})}, {2});
  inputs.ranks[1].gpus.emplace();
  Settings settings = sgd_job().settings;
  settings.placement.device = "auto";
  settings.placement.cores = 1;
  const Graph graph = one_layer();
  const Plan plan = make_plan(settings, graph, inputs);
  ASSERT_EQ(plan.ranks[0].device, "cuda");
  ASSERT_EQ(plan.ranks[1].device, "cpu");
  EXPECT_DOUBLE_EQ(predict(plan, graph, layout_of(settings, graph), figures, 1).mean[StepPart::compute], kFlops / 1e6);
}

}  // namespace
}  // namespace troupe
