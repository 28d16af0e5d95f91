// The placement of ranks on invented nodes: cores, memory, network devices, and errors.

#include <gmock/gmock.h>

#include "tests/runtime/planning/placed_nodes.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace troupe::testing;

Plan plan_on(const std::vector<Topology>& nodes, const std::vector<std::uint32_t>& counts,
             const Settings& settings = {}) {
  Plan plan = make_plan(settings, small_mlp(), inputs_on(nodes, counts));
  expect_sound(plan, nodes);
  return plan;
}

TEST(Placement, ANumberOfDeviceThreadsIsKeptAndNeedsAsManyCores) {
  Settings settings;
  settings.placement.device_threads.count = 3;
  Topology node = made_node("a", {.numa = 1, .cores_of_numa = 8});
  EXPECT_THAT(plan_on({node}, {2}, settings).ranks, Each(Field(&RankPlan::device_threads, 3u)));
  EXPECT_THAT(plan_on({node}, {2}, settings).ranks[1].cpus, ElementsAre(4, 5, 6, 7));
  node.cpu_quota = 4;
  EXPECT_THAT(make_plan(settings, small_mlp(), inputs_on({node}, {2})).ranks,
              Each(Field(&RankPlan::device_threads, 3u)));
  try {
    plan_on({made_node("a", {.numa = 1, .cores_of_numa = 4})}, {2}, settings);
    FAIL() << "more threads than cores";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(), HasSubstr("placement.device_threads = 3, but rank 0 on node a has 2 cores"));
  }
}

TEST(Placement, APlanSaysThatATrialChoosesThreadsWhereThereIsAChoice) {
  Settings settings;
  settings.placement.device_threads.tried = true;
  EXPECT_THAT(plan_on({made_node("a", {.numa = 1, .cores_of_numa = 4})}, {2}, settings).reasons,
              Contains(HasSubstr("lets a trial at the start find on how many of its cores")));
  EXPECT_THAT(plan_on({made_node("a", {.numa = 1, .cores_of_numa = 2})}, {2}, settings).reasons,
              Not(Contains(HasSubstr("trial"))));
}

TEST(Placement, SpreadGivesEachRankANumaNodeOfItsOwn) {
  const Plan plan = plan_on({made_node("a")}, {2}, with_policy("spread", 2));
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(8, 9));
  EXPECT_THAT(plan.ranks[0].numa_nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[1].numa_nodes, ElementsAre(1));
  EXPECT_THAT(plan.ranks[1].control_cpus, ElementsAre(10)) << "beside its cores";
}

TEST(Placement, SpreadRanksOfANumaNodeHaveCachesOfTheirOwn) {
  const Plan plan = plan_on({made_node("a", {.numa = 1})}, {2}, with_policy("spread", 2));
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(4, 5));
}

TEST(Placement, PackFillsOneCacheAndOneNumaNodeAfterAnother) {
  const Plan plan = plan_on({made_node("a")}, {5}, with_policy("pack", 2));
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(2, 3));
  EXPECT_THAT(plan.ranks[2].cpus, ElementsAre(4, 5));
  EXPECT_THAT(plan.ranks[4].cpus, ElementsAre(8, 9));
}

TEST(Placement, PackLeavesCoresFreeRatherThanLetARankHaveTwoNumaNodes) {
  const Plan plan =
      plan_on({made_node("a", {.numa = 2, .cores_of_numa = 5, .cores_of_cache = 5})}, {3}, with_policy("pack"));
  EXPECT_THAT(plan.ranks, Each(Field(&RankPlan::device_threads, 2u)));
  EXPECT_THAT(plan.ranks[2].cpus, ElementsAre(5, 6));
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("4 cores are left free")));
}

TEST(Placement, ARankThatNeedsMoreThanANumaNodeHasGetsSeveral) {
  for (const char* const policy : {"spread", "pack"}) {
    const Plan plan = plan_on({made_node("a", {.numa = 4, .cores_of_numa = 4})}, {2}, with_policy(policy, 6));
    EXPECT_THAT(plan.ranks[0].numa_nodes, ElementsAre(0, 1)) << policy;
    EXPECT_THAT(plan.ranks[1].numa_nodes, ElementsAre(2, 3)) << policy;
  }
}

TEST(Placement, AutoPlacesAsItDidWithMemoryOfTheCoresNumaNodes) {
  const Plan plan = plan_on({made_node("a")}, {3});
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(plan.ranks[0].numa_nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[1].numa_nodes, ElementsAre(0, 1));
}

TEST(Placement, WhatDoesNotFitIsRefusedWithTheConstraint) {
  const auto why = [](const std::string& policy, std::uint32_t cores, std::uint32_t ranks) {
    return refusal([&] { plan_on({made_node("a")}, {ranks}, with_policy(policy, cores)); });
  };
  EXPECT_THAT(why("spread", 0, 17), AllOf(HasSubstr("node a has 16 cores"), HasSubstr("17 ranks")));
  EXPECT_THAT(why("pack", 0, 17), HasSubstr("node a has 16 cores"));
  EXPECT_THAT(why("spread", 5, 3),
              AllOf(HasSubstr("2 ranks on NUMA node 0 of node a needs 10 cores"), HasSubstr("8 there")));
  EXPECT_THAT(why("pack", 5, 3), AllOf(HasSubstr("placement.cores = 5"), HasSubstr("3 ranks")));
  EXPECT_THAT(why("pack", 6, 3), HasSubstr("needs 18 cores, but this job may use 16 there"));
  EXPECT_EQ(exit_code(Code::invalid), 2);
}

TEST(Placement, ThePolicyOfAHostCountsForAllItsNetworkNamespaces) {
  Topology a = made_node("a");
  Topology b = a;
  b.identity.network_namespace = 99;
  const Plan plan = plan_on({a, b}, {1, 1}, with_policy("spread", 2));
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(8, 9));
}

Topology with_accelerators(std::initializer_list<std::int32_t> numa) {
  Topology node = made_node("a");
  for (const std::int32_t each : numa)
    node.accelerators.push_back({.name = text("GPU ", node.accelerators.size()), .numa = each});
  return node;
}

TEST(Placement, RanksOfAMachineWithGpusHaveCoresNearThem) {
  const Plan plan = plan_on({with_accelerators({1, 0})}, {2});
  EXPECT_THAT(plan.ranks[0].numa_nodes, ElementsAre(1));
  EXPECT_EQ(plan.ranks[0].accelerator, "GPU 0");
  EXPECT_EQ(plan.ranks[1].accelerator, "GPU 1");
  EXPECT_EQ(plan.ranks[0].device, "cpu");
  EXPECT_THAT(describe(plan), HasSubstr("near its GPU, and computes on the cores"));
  Settings settings;
  settings.placement.device = "cpu";
  EXPECT_THAT(plan_on({with_accelerators({1, 0})}, {2}, settings).ranks,
              Each(Field(&RankPlan::accelerator, IsEmpty())));
}

TEST(Placement, MoreRanksThanGpusLeaveSomeWithout) {
  const Plan plan = plan_on({with_accelerators({0, 1})}, {3});
  EXPECT_EQ(plan.ranks[1].accelerator, "");
  EXPECT_EQ(plan.ranks[2].accelerator, "GPU 1");
}

TEST(Placement, AMeshThatTheJobIsNotIsRefused) {
  Settings settings;
  settings.placement.mesh = {2, 2};
  const std::vector<Topology> nodes{made_node("a"), made_node("b")};
  EXPECT_EQ(plan_on(nodes, {2, 2}, settings).ranks.size(), 4u);
  EXPECT_THAT(refusal([&] {
                plan_on(nodes, {2, 1}, settings);
              }),
              AllOf(HasSubstr("placement.mesh = \"2x2\""), HasSubstr("the job has 3 ranks on 2 nodes")));
  EXPECT_THAT(refusal([&] { plan_on(nodes, {3, 1}, settings); }), HasSubstr("node a has 3"));
}

TEST(Placement, MemoryThatAHostDoesNotHaveIsRefused) {
  Topology small = made_node("a");
  const auto with = [&](std::uint64_t numa_bytes, std::uint64_t limit, const char* policy = "auto") {
    for (NumaNode& numa : small.numa) numa.memory_bytes = numa_bytes;
    small.memory_limit_bytes = limit;
    return make_plan(with_policy(policy), small_mlp(), inputs_on({small}, {4}));
  };
  const Plan plan = with(64'000'000'000, 0);
  std::uint64_t used = 0;
  for (std::uint32_t r = 0; r < 4; ++r) {
    const MemoryNeeds needs = memory_needs(plan, small_mlp(), {r});
    used += needs.memory_bytes() - needs.peers;
  }
  EXPECT_EQ(plan.nodes[0].memory_used, used);
  EXPECT_EQ(plan.nodes[0].memory_there, 128'000'000'000u);
  EXPECT_EQ(plan.nodes[0].numa[0].used + plan.nodes[0].numa[1].used, used);
  EXPECT_THAT(refusal([&] { with(used / 4, 0); }), AllOf(HasSubstr("node a has"), HasSubstr("its 4 ranks take")));
  EXPECT_THAT(refusal([&] { with(64'000'000'000, used - 1); }), HasSubstr("a control group grants"));
  EXPECT_EQ(with(64'000'000'000, used).nodes[0].memory_there, used);
  small.memory_bytes = 256'000'000'000;
  EXPECT_EQ(with(64'000'000'000, 0).nodes[0].memory_there, 256'000'000'000u) << "memory that was added later";
  small.memory_bytes = 0;
  EXPECT_EQ(with(0, 0).nodes[0].memory_there, 0u) << "what is not known is not judged";
}

TEST(Placement, ANumaNodeWithTooLittleMemoryIsHelpedOutUnderAutoAlone) {
  Topology node = made_node("a");
  node.numa[1].memory_bytes = 1'000'000;
  const Plan plan = make_plan({}, small_mlp(), inputs_on({node}, {2}));
  EXPECT_THAT(plan.ranks[0].numa_nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[1].numa_nodes, IsEmpty());
  EXPECT_THAT(plan.reasons, Contains(AllOf(HasSubstr("NUMA node 1 has 1.0 MB"), HasSubstr("from anywhere"))));
  EXPECT_THAT(refusal([&] { make_plan(with_policy("spread"), small_mlp(), inputs_on({node}, {2})); }),
              HasSubstr("node a: NUMA node 1 has 1.0 MB"));
}

std::vector<Topology> two_nodes(const std::vector<Nic>& nics_of_a, const std::vector<Nic>& nics_of_b) {
  std::vector<Topology> nodes{made_node("a"), made_node("b")};
  nodes[0].nics = nics_of_a;
  nodes[1].nics = nics_of_b;
  return nodes;
}

std::vector<std::string> devices_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const RankPlan& rank : plan.ranks) names.push_back(rank.network_device);
  return names;
}

TEST(Placement, RanksSendOverTheNearestDeviceOfTheNetworkThatAllNodesAreIn) {
  const std::vector<Nic> far_and_near{made_nic("eth0", 0, "10.1.0.1"), made_nic("eth1", 1, "10.1.0.2"),
                                      made_nic("docker0", 0, "172.17.0.1"), made_nic("lan0", 0, "192.168.3.1")};
  const std::vector<Nic> others{made_nic("docker0", 0, "172.17.0.1"), made_nic("ens3", -1, "10.1.0.3")};
  EXPECT_THAT(devices_of(plan_on(two_nodes(far_and_near, others), {2, 1})), ElementsAre("eth0", "eth1", "ens3"));
}

TEST(Placement, DevicesThatAreAsNearAreUsedByTurns) {
  std::vector<Nic> nics{made_nic("mlx5_0", 0, "", "mlx5_0"), made_nic("mlx5_1", 0, "", "mlx5_1")};
  EXPECT_THAT(devices_of(plan_on(two_nodes(nics, nics), {4, 1})),
              ElementsAre("mlx5_0:1", "mlx5_1:1", "mlx5_0:1", "mlx5_1:1", "mlx5_0:1"));
  nics[1].bits_per_second /= 4;
  EXPECT_THAT(devices_of(plan_on(two_nodes(nics, nics), {2, 1})), Each("mlx5_0:1"));
}

TEST(Placement, TheDeviceNearestToARanksGpuComesFirst) {
  std::vector<Topology> nodes = two_nodes({made_nic("eth0", 0), made_nic("eth1", 0)}, {made_nic("eth0", 0)});
  nodes[0].accelerators = {{.name = "GPU 0", .numa = 0, .nearest_nics = {"eth1"}}};
  EXPECT_THAT(devices_of(plan_on(nodes, {1, 1})), ElementsAre("eth1", "eth0"));
}

TEST(Placement, NoDeviceIsNamedWhereItIsNotKnownWhichReachTheOthers) {
  const Plan plan = plan_on(two_nodes({made_nic("eth0", 0, "10.1.0.1")}, {made_nic("eth0", 0, "192.168.0.1")}), {1, 1});
  EXPECT_THAT(devices_of(plan), Each(""));
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("UCX chooses")));
  EXPECT_THAT(devices_of(plan_on({made_node("a"), made_node("b")}, {1, 1})), Each(""));
  EXPECT_THAT(devices_of(plan_on({two_nodes({made_nic("eth0", 0, "10.1.0.1")}, {})[0]}, {2})), Each("")) << "one node";
}

TEST(Placement, ANodeWithoutADeviceThatIsUpIsRefused) {
  std::vector<Nic> down{made_nic("eth0", 0), made_nic("ib0", 0)};
  for (Nic& nic : down) nic.up = false;
  EXPECT_THAT(refusal([&] {
                plan_on(two_nodes({made_nic("eth0", 0)}, down), {1, 1});
              }),
              HasSubstr("node b has no network device that is up (eth0, ib0 are down)"));
  Settings settings;
  settings.cluster.transport = "rdma";
  EXPECT_THAT(refusal([&] {
                plan_on(two_nodes({made_nic("eth0", 0, "", "mlx5_0")}, {made_nic("eth0", 0)}), {1, 1}, settings);
              }),
              AllOf(HasSubstr("cluster.transport = \"rdma\""), HasSubstr("node b has none")));
}

}  // namespace
}  // namespace troupe
