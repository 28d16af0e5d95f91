// Predictions against cases computed by hand.

#include "runtime/planning/cost_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/compute/winograd.hpp"
#include "runtime/planning/detail/exchange_timeline.hpp"
#include "runtime/planning/planner.hpp"
#include "tests/support/plan_inputs.hpp"

namespace troupe {
namespace {

using detail::exchange_timeline;
using detail::ExchangedBucket;
using detail::ExchangeLink;
using detail::exposed_calls_s;
using detail::LayerTime;
using detail::TimedBucket;
using ::testing::Contains;
using ::testing::HasSubstr;
using topology::Measurements;
using topology::Repeats;

Repeats exactly(double value) { return {value, value, value}; }

/// Two layers: a second forward and two backward each.
const std::vector<LayerTime> kLayers{{1, 2}, {1, 2}};
/// 100 B/s: half of a bucket of 100 elements (200 B) takes 2 s each way.
ExchangeLink link_of_two() { return {.nodes = 2, .bytes_per_second = 100, .chunk_elements = 100}; }

TEST(ExchangeTimeline, ABucketReadFirstIsWaitedForWhole) {
  // Written at 6; contributions leave until 8, results until 10; the next forward pass would begin at 6.
  const auto found = exchange_timeline(kLayers, std::vector<ExchangedBucket>{{100, 0, false}}, link_of_two(), 0);
  EXPECT_DOUBLE_EQ(found.exposed_s, 4);
  EXPECT_DOUBLE_EQ(found.link_busy_s, 4);
}

TEST(ExchangeTimeline, ContributionsLeaveBeforeResultsAndOfTheseTheFirstReadGoFirst) {
  // The later layer's contributions leave from 4 to 6, the first one's to 8, its results to 10, the others' to 12. The
  // next forward pass: the first layer from 10 to 11, the second one from 12 to 13. Without an exchange: 6 to 8.
  const std::vector<ExchangedBucket> buckets{{100, 1, false}, {100, 0, false}};
  const auto found = exchange_timeline(kLayers, buckets, link_of_two(), 0);
  EXPECT_DOUBLE_EQ(found.exposed_s, 5);
  EXPECT_DOUBLE_EQ(found.link_busy_s, 8);
}

TEST(ExchangeTimeline, DeltasLeaveWhenTheStepIsOver) {
  const std::vector<ExchangedBucket> buckets{{100, 1, true}};
  // The step ends at 7; contributions until 9, results until 11; the forward pass reads them at 8: it waits 3 s.
  EXPECT_DOUBLE_EQ(exchange_timeline(kLayers, buckets, link_of_two(), 1).exposed_s, 3);
}

TEST(ExchangeTimeline, LatencyAndUpdatesAreBetweenContributionsAndResults) {
  ExchangeLink link = link_of_two();
  link.latency_s = 0.5;
  link.update_s_per_element = 0.01;  // of the 50 that the node owns
  // 6, sent 8, there 8.5, updated 9, sent 11, there 11.5.
  const auto found = exchange_timeline(kLayers, std::vector<ExchangedBucket>{{100, 0, false}}, link, 0);
  EXPECT_DOUBLE_EQ(found.exposed_s, 5.5);
}

TEST(ExchangeTimeline, ChunksUpdateWhileOthersAreOnTheirWay) {
  ExchangeLink link = link_of_two();
  link.update_s_per_element = 0.02;  // 1 s for the whole bucket
  const std::vector<ExchangedBucket> whole{{100, 0, false}};
  EXPECT_DOUBLE_EQ(exchange_timeline(kLayers, whole, link, 0).exposed_s, 5);
  link.chunk_elements = 50;  // the first chunk is updated while the second one's contributions leave
  EXPECT_DOUBLE_EQ(exchange_timeline(kLayers, whole, link, 0).exposed_s, 4);
}

TEST(ExchangeTimeline, MoreNodesSendMoreOfABucket) {
  ExchangeLink link = link_of_two();
  link.nodes = 4;  // three quarters instead of a half
  const auto found = exchange_timeline(kLayers, std::vector<ExchangedBucket>{{100, 0, false}}, link, 0);
  EXPECT_DOUBLE_EQ(found.link_busy_s, 6);
}

TEST(ExchangeTimeline, CallsRunOneAtATimeBesideTheRestOfTheBackwardPass) {
  // The backward pass has the later layer's gradients at 4 and the first one's at 6, when it ends.
  const auto exposed = [](std::vector<TimedBucket> calls) { return exposed_calls_s(kLayers, calls); };
  EXPECT_DOUBLE_EQ(exposed({}), 0);
  EXPECT_DOUBLE_EQ(exposed({{2, 1, false}}), 0) << "hidden";
  EXPECT_DOUBLE_EQ(exposed({{3, 1, false}}), 1);
  EXPECT_DOUBLE_EQ(exposed({{1, 0, false}, {3, 1, false}}), 2) << "the second one is called first, until 7";
  EXPECT_DOUBLE_EQ(exposed({{3, 1, true}}), 3) << "deltas are there at the end";
}

TEST(ExchangeTimeline, OneNodeWaitsForNothing) {
  ExchangeLink link = link_of_two();
  link.nodes = 1;
  EXPECT_EQ(exchange_timeline(kLayers, std::vector<ExchangedBucket>{{100, 0, false}}, link, 0).exposed_s, 0);
}

/// One layer of 4,096 weights and 64 biases, which no padding follows.
Graph one_layer(DType dtype = DType::f32) {
  return {"one", Shape{{64}}, dtype, {{"fc", Dense{64}}, {"loss", SoftmaxCrossEntropy{}}}};
}
constexpr double kElements = 64 * 64 + 64;
/// Forward and gradient to the weights: the input needs none.
constexpr double kFlops = 2 * 2 * 64 * 64;

/// 1 GFLOP/s a core, 1 GB/s of memory a core, messages of 1 us here; nothing between nodes.
CostFigures round_figures() {
  CostFigures figures;
  figures.measured.date = "2026-01-31T09:05:00Z";
  figures.measured.host = "here";
  for (const std::uint32_t cores : {1u, 4u}) {
    figures.measured.copies.push_back({0, 0, cores, 1 << 20, exactly(1e9 * cores)});
    figures.measured.compute.push_back({"f32", 100, 64, cores, 1, exactly(1e9)});
  }
  figures.measured.messages = {{.means = "shm", .seconds = exactly(1e-6), .bytes_per_second = exactly(1e9)},
                               {.means = "tcp", .seconds = exactly(1e-5), .bytes_per_second = exactly(1e9)}};
  figures.assumed = assumed_figures(testing::plan_inputs(1, 1).topologies.front());
  return figures;
}

struct PredictedJob {
  Settings settings;
  std::uint32_t ranks = 1;
  std::uint32_t nodes = 1;
  std::uint64_t steps = 12;

  Prediction predicted(const CostFigures& figures) const {
    const Graph graph = one_layer();
    const Plan plan = make_plan(settings, graph, troupe::testing::plan_inputs(ranks, nodes));
    return predict(plan, graph, layout_of(settings, graph), figures, steps);
  }
};

Settings sgd_settings() {
  Settings settings;
  settings.rule.kind = RuleKind::sgd;
  settings.data.batch = 100;
  settings.placement.cores = 1;
  return settings;
}

TEST(CostModel, OneRankComputesAndUpdates) {
  const Prediction found = PredictedJob{.settings = sgd_settings()}.predicted(round_figures());
  EXPECT_DOUBLE_EQ(found.mean[StepPart::compute], kFlops * 100 / 1e9);
  // Parameters and gradients are read, parameters written.
  EXPECT_DOUBLE_EQ(found.mean[StepPart::update], kElements * 3 * 4 / 1e9);
  EXPECT_EQ(found.mean[StepPart::exchange], 0);
  EXPECT_EQ(found.mean[StepPart::copy], 0);
  EXPECT_DOUBLE_EQ(found.samples_per_second, 100 / found.mean.total());
  EXPECT_THAT(found.basis, Contains(HasSubstr("here by rttopo bench, 2026-01-31T09:05:00Z")));
}

TEST(CostModel, AdamMovesItsTwoStatesToo) {
  PredictedJob job{.settings = sgd_settings()};
  job.settings.rule.kind = RuleKind::adam;
  EXPECT_DOUBLE_EQ(job.predicted(round_figures()).mean[StepPart::update], kElements * 7 * 4 / 1e9);
}

TEST(CostModel, RanksOfANodeUpdateTheirStripesFromAllGradients) {
  const Prediction found = PredictedJob{.settings = sgd_settings(), .ranks = 2}.predicted(round_figures());
  // The larger stripe has whole blocks of 1,024 elements; two gradients are read.
  EXPECT_DOUBLE_EQ(found.mean[StepPart::update], 3072 * 4.0 * 4 / 1e9);
  EXPECT_DOUBLE_EQ(found.mean[StepPart::exchange], 2e-6);  // one bucket, two signals
}

TEST(CostModel, NodesExchangeOverTheSlowestWayThatWasMeasured) {
  CostFigures figures = round_figures();
  for (const double rate : {1e7, 1e6, 1e8})
    figures.measured.messages.push_back(
        {.means = "network", .same_node = false, .seconds = exactly(0), .bytes_per_second = exactly(rate)});
  const PredictedJob job{.settings = sgd_settings(), .ranks = 2, .nodes = 2};
  const Prediction found = job.predicted(figures);
  // Half of the parameters leave as gradients, half as results; the one layer waits for all of them. Between the two
  // the node's half is updated, from two gradients.
  const double wire = kElements / 2 * 4 * 2 / 1e6;
  const double update = kElements / 2 * 4 * 4 / 1e9;
  EXPECT_NEAR(found.mean[StepPart::exchange], wire + update, 1e-9);
  EXPECT_EQ(found.mean[StepPart::update], 0);  // it is another stream's
}

TEST(CostModel, NodesExchangeAtTheRateOfALinkThatIsBusyBothWays) {
  CostFigures figures = round_figures();
  figures.measured.messages.push_back({.means = "network",
                                       .same_node = false,
                                       .seconds = exactly(0),
                                       .bytes_per_second = exactly(1e6),
                                       .both_ways = exactly(5e5)});
  const PredictedJob job{.settings = sgd_settings(), .ranks = 2, .nodes = 2};
  const double wire = kElements / 2 * 4 * 2 / 5e5;
  const double update = kElements / 2 * 4 * 4 / 1e9;
  EXPECT_NEAR(job.predicted(figures).mean[StepPart::exchange], wire + update, 1e-9);
}

TEST(CostModel, AFastWayCostsAtLeastTheCoresTime) {
  CostFigures figures = round_figures();
  figures.measured.messages.push_back(
      {.means = "network", .same_node = false, .seconds = exactly(0), .bytes_per_second = exactly(1e15)});
  const PredictedJob job{.settings = sgd_settings(), .ranks = 2, .nodes = 2};
  const Settings& settings = job.settings;
  const Plan plan = make_plan(settings, one_layer(), troupe::testing::plan_inputs(2, 2));
  ASSERT_FALSE(plan.ranks[0].control_cpus.empty());  // lanes have cores of their own: nothing but the wire counts
  const double apart = job.predicted(figures).mean[StepPart::exchange];
  PredictedJob crowded = job;
  crowded.settings.placement.cores = 2;
  const double together = crowded.predicted(figures).mean[StepPart::exchange];
  // Sent and received at 1 GB/s, gradients and results, half of each.
  EXPECT_GE(together, 2 * kElements / 2 * 8 / 1e9);
  EXPECT_LT(apart, together);
}

TEST(CostModel, BlockMomentumExchangesOncePerBlock) {
  CostFigures figures = round_figures();
  figures.measured.messages.push_back(
      {.means = "network", .same_node = false, .seconds = exactly(0), .bytes_per_second = exactly(1e6)});
  PredictedJob job{.settings = sgd_settings(), .ranks = 2, .nodes = 2, .steps = 12};
  job.settings.update.kind = PolicyKind::block_momentum;
  job.settings.update.block_samples = 4 * 200;  // four steps of two ranks with 100 rows
  const Prediction found = job.predicted(figures);
  const double block = kElements / 2 * 4 * 2 / 1e6;  // as in a synchronous step, once in four
  EXPECT_NEAR(found.mean[StepPart::exchange], block / 4, block / 40);
  // Each step updates all of the rank's own weights.
  EXPECT_DOUBLE_EQ(found.mean[StepPart::update], kElements * 3 * 4 / 1e9);
  EXPECT_GT(found.mean[StepPart::copy], 0);
  EXPECT_EQ(found.phases.size(), 1u);
  EXPECT_EQ(found.phases.front().policies, "block_momentum");
}

TEST(CostModel, AWarmStartIsAPhaseOfItsOwn) {
  PredictedJob job{.settings = sgd_settings(), .ranks = 2, .nodes = 1, .steps = 100};
  job.settings.update.kind = PolicyKind::local_sgd;
  job.settings.update.every_steps = 5;
  job.settings.update.distributed_after = 10 * 200;
  const Prediction found = job.predicted(round_figures());
  ASSERT_EQ(found.phases.size(), 2u);
  EXPECT_EQ(found.phases[0].policies, "sync");
  EXPECT_EQ(found.phases[0].steps, 10u);
  EXPECT_EQ(found.phases[1].first, 10u);
  EXPECT_EQ(found.phases[1].steps, 90u);
  EXPECT_DOUBLE_EQ(found.mean.total(), 0.1 * found.phases[0].step.total() + 0.9 * found.phases[1].step.total());
}

TEST(CostModel, RatesAreReadBetweenTheRowsThatWereMeasured) {
  CostFigures figures = round_figures();
  figures.measured.compute = {{"f32", 25, 64, 1, 1, exactly(1e9)}, {"f32", 400, 64, 1, 1, exactly(3e9)}};
  const PredictedJob job{.settings = sgd_settings()};  // 100 rows: in the middle on a logarithmic scale
  EXPECT_NEAR(job.predicted(figures).mean[StepPart::compute], kFlops * 100 / 2e9, 1e-12);
}

TEST(CostModel, RatesAreReadBetweenTheModelsThatWereMeasured) {
  CostFigures figures = round_figures();
  const auto measured = [](std::uint32_t units, double rate) {
    return topology::ComputeFigure{
        .dtype = "f32", .rows = 100, .units = units, .flops_per_second = exactly(rate), .layers = 1};
  };
  figures.measured.compute = {measured(32, 3e9), measured(128, 1e9)};
  const PredictedJob job{.settings = sgd_settings()};  // about 64 x 64 weights: in the middle on a logarithmic scale
  const double predicted_s = job.predicted(figures).mean[StepPart::compute];
  EXPECT_NEAR(predicted_s, kFlops * 100 / 2e9, 0.02 * predicted_s);
}

TEST(CostModel, BusyNeighboursAndMoreThreadsSlowEachThreadDown) {
  CostFigures figures = round_figures();
  figures.measured.compute = {{"f32", 100, 64, 1, 1, exactly(1e9)},
                              {"f32", 100, 64, 4, 1, exactly(5e8)},   // four models at once
                              {"f32", 100, 64, 1, 4, exactly(2e9)}};  // one model on four threads
  PredictedJob job{.settings = sgd_settings(), .ranks = 4};
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::compute], kFlops * 100 / 5e8);
  job.ranks = 1;
  job.settings.placement.cores = 4;
  EXPECT_DOUBLE_EQ(job.predicted(figures).mean[StepPart::compute], kFlops * 100 / 2e9);
}

/// Images of 16 x 16 with 64 channels, convolved into as many.
Graph one_convolution(DType dtype = DType::f32) {
  return {"conv",
          Shape{{16, 16, 64}},
          dtype,
          {{"conv", Conv2d{.filters = 64, .kernel = {3, 3}, .padding = {1, 1}}}, {"loss", SoftmaxCrossEntropy{}}}};
}
constexpr double kDirectFlops = 2 * 2 * 9.0 * 64 * 64 * 16 * 16 * 100;

Prediction predicted_for(const Graph& graph, const CostFigures& figures) {
  Settings settings = sgd_settings();
  settings.model.dtype = graph.dtype();
  const Plan plan = make_plan(settings, graph, troupe::testing::plan_inputs(1, 1));
  return predict(plan, graph, layout_of(settings, graph), figures, 1);
}

TEST(CostModel, ConvolutionsThatGainByWinogradsAlgorithmTakeItsOperationsWhereTheProcessorHasIt) {
  CostFigures figures = round_figures();
  const Prediction direct = predicted_for(one_convolution(), figures);
  EXPECT_DOUBLE_EQ(direct.mean[StepPart::compute], kDirectFlops / 1e9);
  EXPECT_THAT(direct.basis, Contains(HasSubstr("Convolutions are assumed to be direct")));
  figures.measured.winograd = true;
  const Prediction fewer = predicted_for(one_convolution(), figures);
  // A quarter of the products; of 9 * 64 for each place and filter the images' transforms take 108 more, and those of
  // the weights 1.5 % of all for 100 images with 16 tiles each.
  EXPECT_NEAR(fewer.mean[StepPart::compute], kDirectFlops / 1e9 * (0.25 + 108.0 / 576 + 0.015), 1e-9);
  EXPECT_DOUBLE_EQ(predicted_for(one_convolution(DType::bf16), figures).mean[StepPart::compute], kDirectFlops / 1e9)
      << "convolutions in bf16 are direct";
}

TEST(CostModel, AConvolutionsProductHasARowForEachPlace) {
  CostFigures figures = round_figures();
  figures.measured.compute = {{"f32", 100, 64, 1, 1, exactly(1e9)}, {"f32", 100 * 256, 64, 1, 1, exactly(4e9)}};
  EXPECT_DOUBLE_EQ(predicted_for(one_convolution(), figures).mean[StepPart::compute], kDirectFlops / 4e9);
}

/// Of convolutions of 3 x 3 on square images: their part of the direct one's time.
double part_of(std::uint32_t channels, std::uint32_t side, std::uint32_t rows) {
  const Shape image{{side, side, channels}};
  return winograd_time_part(Conv2d{.filters = channels, .kernel = {3, 3}, .padding = {1, 1}}, image, image, rows);
}

TEST(WinogradTime, FollowsWhatWasMeasured) {
  EXPECT_NEAR(1 / part_of(32, 32, 100), 1.7, 0.2);
  EXPECT_NEAR(1 / part_of(64, 32, 100), 2.2, 0.2);
  EXPECT_NEAR(1 / part_of(512, 4, 128), 1.8, 0.5);
  EXPECT_GT(part_of(512, 4, 64), part_of(512, 4, 128)) << "fewer tiles share the weights' transforms";
  EXPECT_GT(part_of(64, 9, 100), part_of(64, 8, 100)) << "tiles that are partly outside of the image";
  EXPECT_EQ(part_of(512, 4, 1), 1);
}

TEST(CostModel, SaysWhatItAssumes) {
  CostFigures figures = round_figures();
  const PredictedJob job{.settings = sgd_settings(), .ranks = 2, .nodes = 2};
  EXPECT_THAT(job.predicted(figures).basis, Contains(HasSubstr("network namespaces of one host")));
  figures.measured = {};
  const Prediction found = job.predicted(figures);
  EXPECT_THAT(found.basis, Contains(HasSubstr("run `rttopo bench`")));
  EXPECT_GT(found.mean.total(), 0);
}

TEST(CostModel, ComparesPartByPart) {
  Prediction prediction;
  prediction.mean[StepPart::compute] = 6e-3;
  prediction.mean[StepPart::exchange] = 1e-3;
  MeasuredSteps measured{.steps = 50, .step_s = 8e-3, .has_parts = true};
  measured.seconds[static_cast<std::size_t>(StepPart::compute)] = 5e-3;
  const std::string said = compare(prediction, measured);
  EXPECT_THAT(said, HasSubstr("compute            6.000         5.000                  1.20"));
  EXPECT_THAT(said, HasSubstr("all                7.000         8.000                  0.88"));
  EXPECT_THAT(said, HasSubstr("exchange           1.000         0.000                     -"));
  EXPECT_THAT(said, HasSubstr("Means of 50 steps"));
}

}  // namespace
}  // namespace troupe
