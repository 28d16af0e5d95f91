#include "runtime/planning/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "runtime/base/error.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/data/schedule.hpp"

namespace troupe {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Graph mlp(DType dtype = DType::f32) {
  return {"mlp",
          Shape{{784}},
          dtype,
          {{"fc1", Dense{1000}},
           {"relu1", Relu{}},
           {"fc2", Dense{1000}},
           {"relu2", Relu{}},
           {"fc3", Dense{10}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

/// A node with cores of `threads` hardware threads each, numbered as Linux does: all first threads, then all second
/// ones.
Topology node(std::string host, std::uint32_t cores, std::uint32_t threads = 1, std::uint32_t numa = 1) {
  Topology topology;
  topology.identity = {"boot of " + host, 4026531840};
  topology.host = std::move(host);
  for (std::uint32_t n = 0; n < numa; ++n) topology.numa.push_back({n, 1ull << 44});
  for (std::uint32_t c = 0; c < cores; ++c) {
    Core core{.index = c, .numa = c * numa / cores};
    for (std::uint32_t t = 0; t < threads; ++t) core.cpus.push_back(t * cores + c);
    topology.cores.push_back(core);
  }
  return topology;
}

/// `counts[i]` ranks on node i, one node after the other.
PlanInputs inputs_of(const std::vector<Topology>& nodes, const std::vector<std::uint32_t>& counts) {
  PlanInputs inputs;
  inputs.topologies = nodes;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (std::uint32_t i = 0; i < counts[n]; ++i) inputs.ranks.push_back({nodes[n].identity, nodes[n].host});
  }
  inputs.train_samples = 60000;
  inputs.test_samples = 10000;
  inputs.data_bytes = 54'950'000;
  return inputs;
}

Plan plan_of(const std::vector<Topology>& nodes, const std::vector<std::uint32_t>& counts,
             const Settings& settings = {}) {
  return make_plan(settings, mlp(), inputs_of(nodes, counts));
}

std::string failure(const std::function<void()>& work, Code code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

TEST(Planner, RanksOfANodeShareItsCoresEqually) {
  const Plan plan = plan_of({node("a", 4, 2)}, {2});
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::device_threads, 2u)));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::may_spin, true)));
  EXPECT_EQ(plan.ranks[1].local_rank, 1u);
}

TEST(Planner, CoresAreTakenByNumaNodeThenIndex) {
  Topology a = node("a", 4);
  a.numa.push_back({1, 1});
  for (Core& core : a.cores) core.numa = core.index % 2;  // interleaved
  const Plan plan = plan_of({a}, {2});
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 2));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(1, 3));
}

TEST(Planner, CoresThatDoNotDivideAreLeftFree) {
  const Plan plan = plan_of({node("a", 5)}, {2});
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::device_threads, 2u)));
  EXPECT_THAT(plan.reasons[0], HasSubstr("1 of 5 cores is left free"));
}

TEST(Planner, StripesFollowTheSettings) {
  const auto counts_with = [](const Settings& settings) {
    const Plan plan = plan_of({node("a", 8)}, {4}, settings);
    std::vector<std::uint64_t> counts;
    for (const Stripe& stripe : plan.groups[0].stripes) counts.push_back(stripe.count);
    return counts;
  };
  Settings settings;
  const auto equal = counts_with(settings);
  settings.placement.stripes = {2, 2, 2, 2};
  const auto same = counts_with(settings);
  for (std::size_t r = 0; r < 4; ++r)  // in whole blocks, rounded in another place
    EXPECT_NEAR(static_cast<double>(same[r]), static_cast<double>(equal[r]), 1024);
  settings.placement.stripes = {1, 2, 1, 0};
  const auto shared = counts_with(settings);
  EXPECT_EQ(shared[3], 0u);
  EXPECT_NEAR(static_cast<double>(shared[1]), 2.0 * static_cast<double>(shared[0]), 2048);
  settings.placement.stripes = {1, 1, 1};
  EXPECT_THROW(counts_with(settings), Error);
  settings.placement.stripes = {0, 0, 0, 0};
  EXPECT_THROW(counts_with(settings), Error);
  settings.placement.stripes = {};
  settings.placement.bandwidth = {10, 10, 10, 1};
  const auto linked = counts_with(settings);
  EXPECT_NEAR(static_cast<double>(linked[0]), static_cast<double>(linked[1]), 1024);
  EXPECT_LT(linked[3], linked[0] / 4);
  settings.placement.stripes = {1, 1, 1, 1};
  EXPECT_THROW(counts_with(settings), Error);
}

TEST(Planner, MoreRanksThanCoresShareThemAndSleep) {
  const Plan plan = plan_of({node("a", 2)}, {4});
  for (std::uint32_t r = 0; r < 4; ++r) EXPECT_THAT(plan.ranks[r].cpus, ElementsAre(r % 2));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::may_spin, false)));
  EXPECT_THAT(plan.reasons[0], HasSubstr("4 ranks share 2 cores"));
}

TEST(Planner, CoresOfARankCanBeSet) {
  Settings settings;
  settings.placement.cores = 3;
  const Plan plan = plan_of({node("a", 7)}, {2}, settings);
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(3, 4, 5));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::control_cpus, IsEmpty())));
}

TEST(Planner, LanesGetCoresOfTheirOwnOfThoseThatRanksLeave) {
  Settings settings;
  settings.placement.cores = 2;
  const Plan one = plan_of({node("a", 6, 2)}, {2}, settings);
  EXPECT_THAT(one.ranks[0].cpus, ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(one.ranks[0].control_cpus, ElementsAre(2, 8));
  EXPECT_THAT(one.ranks[1].cpus, ElementsAre(3, 4, 9, 10));
  EXPECT_THAT(one.ranks[1].control_cpus, ElementsAre(5, 11));
  EXPECT_THAT(one.ranks, Each(Field(&RankPlan::bulk_cpus, IsEmpty())));
  EXPECT_THAT(one.ranks, Each(Field(&RankPlan::device_threads, 2u)));
  EXPECT_THAT(describe(one), HasSubstr("each rank's control lane has one, where the control lane polls"));
  const Plan both = plan_of({node("a", 12)}, {2}, settings);
  EXPECT_THAT(both.ranks[1].cpus, ElementsAre(4, 5));
  EXPECT_THAT(both.ranks[1].control_cpus, ElementsAre(6));
  EXPECT_THAT(both.ranks[1].bulk_cpus, ElementsAre(7));
  EXPECT_THAT(describe(both), HasSubstr("6 + 7"));
}

TEST(Planner, ARankAloneHasNoLanes) {
  Settings settings;
  settings.placement.cores = 2;
  EXPECT_THAT(plan_of({node("a", 6)}, {1}, settings).ranks[0].control_cpus, IsEmpty());
}

TEST(Planner, AQuotaWithoutTimeForLanesLeavesThemWithoutCores) {
  Settings settings;
  settings.placement.cores = 2;
  Topology a = node("a", 8);
  a.cpu_quota = 8;
  EXPECT_THAT(plan_of({a}, {2}, settings).ranks, Each(Field(&RankPlan::control_cpus, Not(IsEmpty()))));
  a.cpu_quota = 7;
  const Plan plan = plan_of({a}, {2}, settings);
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::control_cpus, IsEmpty())));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::bulk_cpus, IsEmpty())));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::may_spin, true)));
}

TEST(Planner, MoreCoresThanThereAreIsAnErrorThatNamesKeyAndNode) {
  Settings settings;
  settings.placement.cores = 5;
  const std::string text = failure([&] { plan_of({node("a", 9)}, {2}, settings); }, Code::invalid);
  EXPECT_THAT(
      text,
      HasSubstr("placement.cores = 5 for each of 2 ranks on node a needs 10 cores, but this job may use 9 there"));
  EXPECT_THAT(text, HasSubstr("at most 4"));
}

TEST(Planner, ANodeWithoutCoresIsAnError) {
  EXPECT_THAT(failure([] { plan_of({node("a", 0)}, {1}); }, Code::environment), HasSubstr("node a has no core"));
}

TEST(Planner, AQuotaBelowTheShareMeansFewerThreadsAndNoPolling) {
  Topology a = node("a", 8);
  a.cpu_quota = 5;
  const Plan plan = plan_of({a}, {2});
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::device_threads, 2u)));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::may_spin, false)));
  EXPECT_THAT(plan.reasons[0], HasSubstr("grants the time of 5 cores to 2 ranks"));
  a.cpu_quota = 8;
  EXPECT_THAT(plan_of({a}, {2}).ranks, Each(Field(&RankPlan::may_spin, true)));
  a.cpu_quota = 0.5;
  EXPECT_THAT(plan_of({a}, {2}).ranks, Each(Field(&RankPlan::device_threads, 1u)));
}

TEST(Planner, OneNodeTakesTheArenaWithOneBucket) {
  const Plan plan = plan_of({node("a", 2)}, {2});
  EXPECT_EQ(name_of(plan.levels), "arena");
  EXPECT_EQ(plan.groups[0].buckets.size(), 1u);
  EXPECT_EQ(plan.nodes.size(), 1u);
}

TEST(Planner, TwoNetworkNamespacesAreTwoNodesWithTheDirectRoute) {
  Topology a = node("a", 2);
  Topology b = a;
  b.identity.network_namespace = 99;
  const Plan plan = plan_of({a, b}, {1, 1});
  EXPECT_EQ(name_of(plan.levels), "direct");
  EXPECT_EQ(plan.nodes.size(), 2u);
  EXPECT_GT(plan.groups[0].buckets.size(), 1u);
  EXPECT_EQ(plan.nodes[1].leader, 1u);
  EXPECT_EQ(plan.ranks[1].local_rank, 0u);
}

TEST(Planner, NodesOfSeveralRanksReduceWithinThemselvesFirst) {
  const Plan plan = plan_of({node("a", 2), node("b", 2)}, {2, 2});
  EXPECT_EQ(name_of(plan.levels), "hierarchical");
  EXPECT_TRUE(plan.shares_memory());
  EXPECT_TRUE(plan.uses_transport());
  EXPECT_GT(plan.groups[0].buckets.size(), 1u);
  EXPECT_THAT(plan.reasons.back(), HasSubstr("its share of the sums with its counterparts"));
  const MemoryNeeds leader = memory_needs(plan, mlp(), Rank{2}), other = memory_needs(plan, mlp(), Rank{3});
  EXPECT_GT(leader.parameters, 0u);
  EXPECT_EQ(other.parameters, 0u) << "the node has one copy";
  EXPECT_EQ(other.journal, 0u);
  EXPECT_GT(other.staging, 0u);
  Settings hosted;
  hosted.update.kind = PolicyKind::async;
  EXPECT_EQ(name_of(plan_of({node("a", 2), node("b", 2)}, {2, 2}, hosted).levels), "direct");
}

TEST(Planner, TwoNetworkNamespacesOfOneHostShareItsCoresOut) {
  Topology a = node("a", 2);
  Topology b = a;
  b.identity.network_namespace = 99;
  const Plan plan = plan_of({a, b}, {1, 1});
  EXPECT_EQ(plan.ranks[0].device_threads, 1u);
  EXPECT_EQ(plan.ranks[1].device_threads, 1u);
  EXPECT_NE(plan.ranks[0].cpus, plan.ranks[1].cpus);
}

TEST(Planner, SharedMemoryAloneDoesNotReachASecondNode) {
  Settings settings;
  settings.cluster.transport = "shm";
  EXPECT_THAT(failure(
                  [&] {
                    plan_of({node("a", 2), node("b", 2)}, {1, 1}, settings);
                  },
                  Code::invalid),
              HasSubstr("cluster.transport = \"shm\" reaches one node only, but rank 1 is on node b"));
  EXPECT_EQ(name_of(plan_of({node("a", 2)}, {2}, settings).levels), "arena");
}

TEST(Planner, StepsEndWithTheLastSampleOfTheLastEpoch) {
  Settings settings;
  settings.train.epochs = 3;
  settings.data.batch = 100;
  PlanInputs inputs = inputs_of({node("a", 3)}, {3});
  inputs.train_samples = 1000;  // 3.33 steps an epoch
  const Plan plan = make_plan(settings, mlp(), inputs);
  EXPECT_EQ(plan.steps, 10u);
  const Schedule schedule{.train_samples = 1000, .rows = 100, .ranks = 3, .steps = plan.steps};
  EXPECT_EQ(schedule.epochs_done({plan.steps - 1}), 3u);
  EXPECT_EQ(schedule.epochs_done({plan.steps - 2}), 2u);
  settings.train.steps = 17;
  EXPECT_EQ(make_plan(settings, mlp(), inputs).steps, 17u);
}

TEST(Planner, EpochsOfWholeStepsTakeOneMoreForWhatIsLeft) {
  Settings settings;
  settings.train.epochs = 3;
  PlanInputs inputs = inputs_of({node("a", 3)}, {3});
  inputs.train_samples = 1000;  // 3 steps of 300, and 100
  for (const Scatter scatter : {Scatter::exact, Scatter::equal}) {
    settings.data.scatter = scatter;
    const Plan plan = make_plan(settings, mlp(), inputs);
    EXPECT_EQ(plan.steps, 12u);
    EXPECT_EQ(plan.scatter, scatter);
    EXPECT_THAT(describe(plan), HasSubstr(text("4 (", name_of(scatter), ") an epoch")));
  }
}

TEST(Planner, SaysThatAStepTakesMoreSamplesThanThereAre) {
  Settings settings;
  settings.data.batch = 100;
  PlanInputs inputs = inputs_of({node("a", 2)}, {2});
  inputs.train_samples = 199;
  const Plan plan = make_plan(settings, mlp(), inputs);
  EXPECT_THAT(repeated_samples(plan), AllOf(HasSubstr("200 samples"), HasSubstr("data.batch = 100 at each of 2 ranks"),
                                            HasSubstr("the training set has 199")));
  EXPECT_THAT(describe(plan), HasSubstr(repeated_samples(plan)));
  inputs.train_samples = 200;
  EXPECT_EQ(repeated_samples(make_plan(settings, mlp(), inputs)), "");
  settings.data.batches = {{100, 2}, {101, 0}};
  EXPECT_THAT(repeated_samples(make_plan(settings, mlp(), inputs)), HasSubstr("202 samples"));
  settings.data.scatter = Scatter::exact;
  EXPECT_EQ(repeated_samples(make_plan(settings, mlp(), inputs)), "");
}

TEST(Planner, SwitchesThatBeginByDifferentNumbersAreComparedByTheirSteps) {
  using enum PolicySwitch::Trigger;
  Settings settings;
  settings.data.batch = 50;
  PlanInputs inputs = inputs_of({node("a", 2)}, {2});
  inputs.train_samples = 1000;  // 10 steps an epoch
  const auto check = [&] { check_order_of_switches(settings, inputs); };
  for (const auto& [first, second, fits] : {std::tuple{PolicySwitch{step, 19}, PolicySwitch{epoch, 3}, true},
                                            std::tuple{PolicySwitch{step, 20}, PolicySwitch{epoch, 3}, false},
                                            std::tuple{PolicySwitch{step, 21}, PolicySwitch{epoch, 3}, false},
                                            std::tuple{PolicySwitch{epoch, 3}, PolicySwitch{step, 19}, false},
                                            std::tuple{PolicySwitch{epoch, 3}, PolicySwitch{samples, 2001}, true},
                                            std::tuple{PolicySwitch{epoch, 3}, PolicySwitch{samples, 2000}, false},
                                            std::tuple{PolicySwitch{samples, 1801}, PolicySwitch{step, 20}, true},
                                            std::tuple{PolicySwitch{samples, 1801}, PolicySwitch{step, 19}, false}}) {
    settings.switches = {first, PolicySwitch{.trigger = straggler, .ratio = 2, .policy = {}}, second};
    if (fits)
      EXPECT_NO_THROW(check());
    else
      EXPECT_THAT(failure(check, Code::invalid), HasSubstr("write them in the order in which they begin"));
  }
  settings.switches = {{step, 21}, {epoch, 3}};
  EXPECT_THAT(failure(check, Code::invalid),
              HasSubstr("update.switch has an entry with at_epoch = 3, in this job step 20, after at_step = 21, step "
                        "21; write them"));
  settings.switches = {{step, 5}};
  EXPECT_NO_THROW(check());
  settings.update = {.kind = PolicyKind::local_sgd, .distributed_after = 500};
  EXPECT_THAT(failure(check, Code::invalid),
              HasSubstr("at_step = 5, in this job step 5, after update.distributed_after = 500, step 5;"));
  settings.update = {};
  settings.switches = {{step, 21}, {epoch, 3}};
  settings.groups = {
      {.name = "biases", .match = {"*.bias"}, .update = {}, .compression = {}, .switches = {}, .rule = {}}};
  std::swap(settings.switches, settings.groups[0].switches);
  EXPECT_THAT(failure(check, Code::invalid), HasSubstr("update.switch of the group \"biases\" has an entry"));
}

TEST(Planner, RefusesThatSeveralRanksComputeAgainWhatTheyWaitForTogether) {
  Graph graph{"norms",
              Shape{{8}},
              DType::f32,
              {{"l1", Dense{16}},
               {"norm", BatchNorm{.synchronized = true}},
               {"l2", Dense{10}},
               {"loss", SoftmaxCrossEntropy{}}}};
  graph.recompute({{0, 1}});
  const auto plan = [&](std::uint32_t ranks) { make_plan(Settings{}, graph, inputs_of({node("a", 2)}, {ranks})); };
  EXPECT_NO_THROW(plan(1));
  EXPECT_THAT(failure([&] { plan(2); }, Code::invalid),
              HasSubstr("train.recompute has the layer norm, in which ranks"));
}

TEST(Planner, RefusesABatchNormOfOneValueForEachChannel) {
  const auto plan = [](Shape image, BatchNorm norm, std::uint32_t ranks) {
    const Graph graph{"norms", image, DType::f32, {{"norm", norm}, {"l2", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}}};
    Settings settings;
    settings.data.batch = 1;
    make_plan(settings, graph, inputs_of({node("a", 2)}, {ranks}));
  };
  EXPECT_NO_THROW(plan({{2, 1, 8}}, {}, 1));
  EXPECT_NO_THROW(plan({{8}}, {.synchronized = true}, 2));
  for (const Shape& image : {Shape{{8}}, Shape{{1, 1, 8}}})
    EXPECT_THAT(failure([&] { plan(image, {}, 2); }, Code::invalid),
                AllOf(HasSubstr("norm: a batch_norm of"), HasSubstr("set data.batch to 2 or more")));
}

TEST(Planner, ASwitchAtAnEpochThatNoRunReachesDoesNotBeginEarlier) {
  Settings settings;
  settings.switches = {{.trigger = PolicySwitch::Trigger::epoch, .at = (1ull << 61) + 1}};
  PlanInputs inputs = inputs_of({node("a", 2)}, {2});
  inputs.train_samples = 8;
  EXPECT_EQ(make_plan(settings, mlp(), inputs).groups[0].policies[1].from_samples, ~std::uint64_t{0} / 2);
}

TEST(Planner, SaysThatAModelHasMoreLogitsThanThereAreClasses) {
  const auto reasons = [](std::uint32_t units) {
    const Graph graph{"g",
                      {{"image", {{6}}, DType::f32}, {"label", {}, DType::i32, 7}},
                      DType::f32,
                      {{"a", Dense{units}}, {"loss", SoftmaxCrossEntropy{}}}};
    return make_plan({}, graph, inputs_of({node("a", 2)}, {2})).reasons;
  };
  EXPECT_THAT(reasons(10), testing::Contains("Layer loss reads 10 logits, and field label has 7 classes: the other "
                                             "logits are no sample's label."));
  EXPECT_THAT(reasons(7), Not(testing::Contains(HasSubstr("logits"))));
}

TEST(Planner, EqualRowsWithSharesBySpeedAreRefused) {
  Settings settings;
  settings.placement.split = "measured";
  settings.data.scatter = Scatter::equal;
  EXPECT_THAT(failure([&] { plan_of({node("a", 2)}, {2}, settings); }, Code::invalid),
              AllOf(HasSubstr("data.scatter"), HasSubstr("placement.split")));
  settings.data.scatter = Scatter::exact;
  EXPECT_TRUE(plan_of({node("a", 2)}, {2}, settings).measured);
}

TEST(Planner, InputsThatMakeNoSenseAreRefused) {
  const Settings settings;
  PlanInputs inputs = inputs_of({node("a", 2)}, {2});
  inputs.train_samples = 0;
  EXPECT_THAT(failure([&] { make_plan(settings, mlp(), inputs); }, Code::invalid), HasSubstr("training set is empty"));
  EXPECT_THAT(failure([&] { make_plan(settings, mlp(), inputs_of({node("a", 2)}, {0})); }, Code::invalid),
              HasSubstr("at least one rank"));
  inputs = inputs_of({node("a", 2)}, {2});
  inputs.ranks.push_back(inputs.ranks.back());
  inputs.ranks.back().node.boot_id = "elsewhere";
  inputs.ranks.back().host = "b";
  EXPECT_THAT(failure([&] { make_plan(settings, mlp(), inputs); }, Code::invalid), HasSubstr("rank 2 is on node b"));
  inputs = inputs_of({node("a", 2), node("a", 3)}, {2, 0});
  EXPECT_THAT(failure([&] { make_plan(settings, mlp(), inputs); }, Code::invalid),
              HasSubstr("two different topologies"));
}

TEST(Planner, MemoryCountsWhatARankHolds) {
  const std::uint64_t n = Layout{mlp()}.count_elements();
  const Plan plan = plan_of({node("a", 2)}, {2});
  const MemoryNeeds first = memory_needs(plan, mlp(), {0});
  const MemoryNeeds second = memory_needs(plan, mlp(), {1});
  EXPECT_EQ(first.parameters, 4 * n);
  EXPECT_EQ(second.parameters, 0u);
  EXPECT_EQ(first.gradients, 4 * n);
  EXPECT_EQ(first.state + second.state, 2 * 4 * n);
  EXPECT_EQ(first.snapshot + second.snapshot, 3 * 4 * n);
  EXPECT_EQ(first.journal, journal_bytes(2));
  EXPECT_EQ(first.pool, 3 * (313600 + 448));
  EXPECT_EQ(first.staging, 0u);
  EXPECT_EQ(plan.ranks[0].arena_bytes, first.arena_bytes());
  EXPECT_EQ(first.data, inputs_of({}, {}).data_bytes);
  EXPECT_EQ(plan.ranks[0].memory_bytes, first.memory_bytes());
  EXPECT_EQ(first.memory_bytes(), first.arena_bytes() + first.data + first.activations + first.peers);
  EXPECT_LT(plan.ranks[0].memory_bytes, 41'000'000u + first.data);
}

TEST(Planner, MemoryHasNoCopyForCheckpointsWhereNoneAreSaved) {
  Settings settings;
  settings.checkpoint.every_steps = 0;
  const Plan plan = make_plan(settings, mlp(), inputs_of({node("a", 2)}, {2}));
  EXPECT_EQ(memory_needs(plan, mlp(), {0}).snapshot, 0u);
}

TEST(Planner, MemoryCountsWhatARankWorksOnInItsPeersArenas) {
  const std::uint64_t n = Layout{mlp()}.count_elements();
  const Plan plan = plan_of({node("a", 3)}, {3});
  const auto peers = [&](const Plan& of, std::uint32_t r) { return memory_needs(of, mlp(), {r}).peers; };
  EXPECT_EQ(peers(plan, 0), 2 * 4 * plan.groups[0].stripes[0].count);          // the others' gradients of its stripe
  EXPECT_EQ(peers(plan, 1), 4 * n + 2 * 4 * plan.groups[0].stripes[1].count);  // and the parameters
  EXPECT_EQ(peers(plan_of({node("a", 1)}, {1}), 0), 0u);
  EXPECT_EQ(peers(plan_of({node("a", 1), node("b", 1)}, {1, 1}), 0), 0u);
}

TEST(Plan, SaysWhereBatchesAreDecoded) {
  Settings settings;
  EXPECT_THAT(describe(plan_of({node("a", 4)}, {2}, settings)),
              HasSubstr("each rank's loader decodes itself, on the cpus of its rank"));
  settings.data.source = "folder";  // an actor does not wait for files
  EXPECT_THAT(describe(plan_of({node("a", 4)}, {2}, settings)),
              HasSubstr("each rank's loader decodes by 1 thread, on"));
  settings.data.threads = 3;
  settings.data.loader = "node";
  EXPECT_THAT(describe(plan_of({node("a", 4)}, {2}, settings)),
              HasSubstr("each node's loader decodes by 3 threads, on the cpus of the node's first rank"));
}

TEST(Planner, OneRankOfANodeReadsTheDataForAllWhereThatIsAskedFor) {
  Settings settings;
  settings.data.loader = "node";
  const std::vector<Topology> nodes{node("a", 2), node("b", 3)};
  const Plan plan = plan_of(nodes, {2, 3}, settings);
  const Plan own = plan_of(nodes, {2, 3});
  std::vector<std::uint64_t> reads;
  for (std::uint32_t r = 0; r < 5; ++r) {
    const MemoryNeeds needs = memory_needs(plan, mlp(), {r});
    const MemoryNeeds before = memory_needs(own, mlp(), {r});
    reads.push_back(needs.data);
    EXPECT_EQ(needs.peers - before.peers, (r == 0 ? 1 : r == 2 ? 2 : 0) * needs.pool) << r;  // the slots it fills
    EXPECT_EQ(plan.ranks[r].arena_bytes, own.ranks[r].arena_bytes);
  }
  EXPECT_THAT(reads, ElementsAre(54'950'000u, 0u, 54'950'000u, 0u, 0u));
  EXPECT_THAT(describe(plan), HasSubstr("Ranks 0, 2 read the data set"));
  EXPECT_FALSE(plan_of({node("a", 2)}, {1}, settings).node_loader);  // there is nobody to load for
}

TEST(Planner, DirectRouteHasOwnParametersAndStaging) {
  Settings settings;
  settings.model.dtype = DType::bf16;
  const Graph graph = mlp(DType::bf16);
  const std::uint64_t n = Layout{graph}.count_elements();
  const Plan plan = make_plan(settings, graph, inputs_of({node("a", 2), node("b", 2)}, {1, 1}));
  const std::uint64_t largest = std::max(plan.groups[0].stripes[0].count, plan.groups[0].stripes[1].count);
  for (const std::uint32_t r : {0u, 1u}) {
    const MemoryNeeds needs = memory_needs(plan, graph, {r});
    EXPECT_EQ(needs.parameters, 4 * n);
    EXPECT_EQ(needs.half, 2 * n);
    EXPECT_EQ(needs.journal, 0u);
    EXPECT_GE(needs.staging, 4 * largest + 2 * 2 * sizeof(StepSums));  // the other rank's gradients, two rounds of sums
  }
}

TEST(Planner, DescribesAModelOfManyLayersByItsFirstOnesAndItsLast) {
  Plan plan = plan_of({node("alpha", 2)}, {1});
  std::vector<Layer> layers;
  for (int i = 1; i <= 40; ++i) layers.push_back({text("d", i), Dense{4}});
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  plan.model = Graph{"deep", Shape{{4}}, DType::f32, layers}.to_string();
  EXPECT_THAT(describe(plan), HasSubstr(R"("d6"=dense(4) ... 34 more layers ... "loss"=softmax_cross_entropy)"));
}

TEST(Planner, TheDescriptionTellsWhoRunsWhere) {
  const std::string text = describe(plan_of({node("alpha", 4, 2), node("beta", 2)}, {2, 1}));
  for (const char* part : {"alpha", "beta", "0-1,4-5", "1,796,010 parameters", "hierarchical", "60,000 training",
                           "batch 100 x 3 ranks = 300", "200 an epoch", "4,000 in all", "poll",
                           "the data set (55.0 MB)", "libraries come on top"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Planner, APolicyThatWaitsForAStragglerHasMemoryAndALine) {
  Settings settings;
  const PlanInputs inputs = inputs_of({node("a", 2)}, {2});
  const std::uint64_t without = make_plan(settings, mlp(), inputs).ranks[0].arena_bytes;
  settings.switches = {{.trigger = PolicySwitch::Trigger::straggler,
                        .ratio = 2.5,
                        .policy = {.kind = PolicyKind::local_sgd, .every_steps = 8}}};
  const Plan plan = make_plan(settings, mlp(), inputs);
  EXPECT_GT(plan.ranks[0].arena_bytes, without);
  EXPECT_THAT(describe(plan), HasSubstr("policy   once a straggler takes 2.5 times the median, local_sgd: "));
}

TEST(Planner, TheDescriptionOfALargeWorldIsShort) {
  const std::string text = describe(plan_of({node("a", 1000)}, {1000}));
  EXPECT_THAT(text, HasSubstr("... 937 more ..."));
  EXPECT_THAT(text, HasSubstr("\n999 "));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 100);
}

std::uint64_t property_seed() {
  const char* set = std::getenv("TROUPE_TEST_SEED");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : std::random_device{}();
}

/// A random world.
struct World {
  Settings settings;
  PlanInputs inputs;
};

World random_world(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  World world;
  const std::uint32_t nodes = 1 + below(5);
  std::vector<Topology> topologies;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    const std::uint32_t numa = 1 + below(4);
    topologies.push_back(node("n" + std::to_string(n), numa * (1 + below(9)), 1 + below(2), numa));
    if (below(3) == 0) topologies.back().cpu_quota = 0.25 * (1 + below(40));
  }
  std::set<std::uint32_t> used;
  const std::uint32_t ranks = 1 + below(24);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint32_t n = below(nodes);
    used.insert(n);
    world.inputs.ranks.push_back({topologies[n].identity, topologies[n].host});
  }
  for (const std::uint32_t n : used) world.inputs.topologies.push_back(topologies[n]);
  world.inputs.train_samples = 1 + below(100000);
  world.inputs.test_samples = below(1000);
  world.settings.data.batch = 1 + below(300);
  world.settings.train.epochs = 1 + below(50);
  return world;
}

void expect_sound_placement(const Plan& plan, const World& world) {
  for (std::uint32_t n = 0; n < plan.nodes.size(); ++n) {
    const auto topology = std::find_if(world.inputs.topologies.begin(), world.inputs.topologies.end(),
                                       [&](const Topology& t) { return t.identity == plan.nodes[n].identity; });
    std::map<std::uint32_t, std::uint32_t> core_of;  // cpu to core
    for (const Core& core : topology->cores) {
      for (const std::uint32_t cpu : core.cpus) core_of[cpu] = core.index;
    }
    std::map<std::uint32_t, int> users;  // of a core
    std::uint32_t local = 0;
    std::uint64_t members = 0;
    double threads = 0;
    bool spin = false;
    for (const RankPlan& rank : plan.ranks) {
      if (rank.node != n) continue;
      EXPECT_EQ(rank.local_rank, local++);
      std::set<std::uint32_t> cores;
      for (const std::uint32_t cpu : rank.cpus) cores.insert(core_of.at(cpu));  // throws for a cpu that is not there
      std::size_t cpus = 0;
      for (const std::uint32_t c : cores) {
        ++users[c];
        cpus += topology->cores[c].cpus.size();
      }
      EXPECT_EQ(cpus, rank.cpus.size()) << "all threads of a core go to one rank";
      EXPECT_GE(cores.size(), rank.device_threads);
      for (const auto& lane : {rank.control_cpus, rank.bulk_cpus}) {
        if (!lane.empty()) ++users[core_of.at(lane.front())];
      }
      EXPECT_GE(rank.device_threads, 1u);
      threads += rank.device_threads;
      spin |= rank.may_spin;
      ++members;
    }
    const bool shared = topology->cores.size() < members;
    for (const auto& [core, count] : users)
      EXPECT_LE(count, shared ? static_cast<int>((members + topology->cores.size() - 1) / topology->cores.size()) : 1);
    if (shared) {
      EXPECT_FALSE(spin);
    }
    if (topology->cpu_quota > 0 && spin) {
      EXPECT_LE(threads, topology->cpu_quota);
    }
  }
}

void expect_full_cover(const Plan& plan) {
  const std::uint64_t n = Layout{mlp()}.count_elements();
  const GroupPlan& group = plan.groups[0];
  ASSERT_EQ(group.stripes.size(), plan.ranks.size() * group.buckets.size());
  for (std::size_t b = 0; b < group.buckets.size(); ++b) {  // every rank has a part of each
    std::uint64_t next = group.buckets[b].first;
    for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
      const Stripe& stripe = group.stripes[b * plan.ranks.size() + r];
      EXPECT_EQ(stripe.owner.value, r);
      EXPECT_EQ(stripe.first, next);
      next += stripe.count;
    }
    EXPECT_EQ(next, group.buckets[b].first + group.buckets[b].count);
  }
  std::uint64_t end = n;  // buckets come from the last layer to the first
  for (const Bucket& bucket : plan.groups[0].buckets) {
    EXPECT_EQ(bucket.first + bucket.count, end);
    end = bucket.first;
  }
  EXPECT_EQ(end, 0u);
}

TEST(Planner, AnyWorldIsPlacedSoundly) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(testing::Message() << "TROUPE_TEST_SEED=" << seed);
  std::mt19937_64 random{seed};
  for (int i = 0; i < 200; ++i) {
    const World world = random_world(random);
    const Plan plan = make_plan(world.settings, mlp(), world.inputs);
    expect_sound_placement(plan, world);
    expect_full_cover(plan);
    const std::uint64_t rows = std::uint64_t{world.settings.data.batch} * plan.world_size();
    const std::uint64_t wanted = world.settings.train.epochs * world.inputs.train_samples;
    EXPECT_GE(plan.steps * rows, wanted);
    EXPECT_LT((plan.steps - 1) * rows, wanted);
    EXPECT_EQ(!plan.uses_transport(), plan.nodes.size() == 1);
    EXPECT_FALSE(describe(plan).empty());
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Planner, TheSameInputsInAnotherOrderGiveTheSamePlan) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(testing::Message() << "TROUPE_TEST_SEED=" << seed);
  std::mt19937_64 random{seed};
  for (int i = 0; i < 50; ++i) {
    World world = random_world(random);
    const Plan plan = make_plan(world.settings, mlp(), world.inputs);
    std::shuffle(world.inputs.topologies.begin(), world.inputs.topologies.end(), random);
    for (Topology& topology : world.inputs.topologies)
      std::shuffle(topology.cores.begin(), topology.cores.end(), random);
    const Plan again = make_plan(world.settings, mlp(), world.inputs);
    ASSERT_EQ(again.to_string(), plan.to_string());
    ASSERT_EQ(again.hash(), plan.hash());
  }
}

/// Processor time of this thread, which the load of the machine does not change much.
double seconds_to_plan(std::uint32_t ranks) {
  const PlanInputs inputs = inputs_of({node("n", 64)}, {ranks});
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begun = now();
  (void)make_plan(Settings{}, mlp(), inputs);
  return now() - begun;
}

TEST(Planner, TakesTimeInProportionToTheRanks) {
  const double some = seconds_to_plan(4096);
  EXPECT_LT(seconds_to_plan(65'536), 100 * some + 0.1);  // 16 times as many; by the square it would be 256
}

}  // namespace
}  // namespace troupe
