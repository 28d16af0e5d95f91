// Clusters that do not exist: how many machines and ranks they get.

#include "runtime/planning/hypothetical_cluster.hpp"

#include <gmock/gmock.h>

#include "runtime/base/clock.hpp"
#include "tests/runtime/planning/placed_nodes.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace troupe::testing;

MachineGroup kind_of(std::uint32_t count, std::size_t accelerators = 0, const char* source = "a.xml") {
  MachineGroup kind{.source = source, .count = count, .topology = made_node("host")};
  for (std::size_t i = 0; i < accelerators; ++i)
    kind.topology.accelerators.push_back({.name = text("GPU ", i), .numa = static_cast<std::int32_t>(i % 2)});
  return kind;
}

/// Ranks of each node.
std::vector<std::uint32_t> counts(const Settings& settings, const std::vector<MachineGroup>& kinds,
                                  const ClusterRequest& request = {}) {
  const PlanInputs inputs = hypothetical_cluster(settings.placement, kinds, request);
  std::vector<std::uint32_t> all(inputs.topologies.size());
  for (const RankFacts& rank : inputs.ranks)
    for (std::size_t n = 0; n < all.size(); ++n) all[n] += inputs.topologies[n].identity == rank.node;
  return all;
}

TEST(HypotheticalCluster, AMachineGetsRanksByThePolicy) {
  EXPECT_THAT(counts({}, {kind_of(2)}), ElementsAre(2, 2)) << "one for each NUMA node";
  EXPECT_THAT(counts({}, {kind_of(1, 8)}), ElementsAre(8)) << "one for each GPU";
  EXPECT_THAT(counts(with_policy("spread"), {kind_of(1, 8)}), ElementsAre(2));
  EXPECT_THAT(counts(with_policy("pack"), {kind_of(1)}), ElementsAre(16));
  EXPECT_THAT(counts(with_policy("pack", 3), {kind_of(1)}), ElementsAre(4));
  EXPECT_THAT(counts({}, {kind_of(1, 4), kind_of(2, 0, "b.xml")}), ElementsAre(4, 2, 2));
  Settings cpu;
  cpu.placement.device = "cpu";
  EXPECT_THAT(counts(cpu, {kind_of(1, 8)}), ElementsAre(2));
}

TEST(HypotheticalCluster, AMeshSaysHowManyOfEach) {
  Settings settings;
  settings.placement.mesh = {2, 3};
  EXPECT_THAT(counts(settings, {kind_of(4)}), ElementsAre(3, 3));
  EXPECT_THAT(refusal([&] { counts(settings, {kind_of(1)}); }),
              AllOf(HasSubstr("placement.mesh"), HasSubstr("there is 1")));
}

TEST(HypotheticalCluster, RanksAreSharedOutOrFillOneMachineAfterAnother) {
  EXPECT_THAT(counts({}, {kind_of(3)}, {.ranks = 7}), ElementsAre(3, 2, 2));
  EXPECT_THAT(counts(with_policy("pack", 4), {kind_of(3)}, {.ranks = 7}), ElementsAre(4, 3));
  EXPECT_THAT(counts({}, {kind_of(3)}, {.ranks = 2}), ElementsAre(1, 1));
  EXPECT_THAT(refusal([] { counts(with_policy("pack", 4), {kind_of(2)}, {.ranks = 9}); }),
              HasSubstr("room for 8 ranks"));
}

TEST(HypotheticalCluster, WhatIfNumbersMakeMachines) {
  EXPECT_THAT(counts({}, {kind_of(1)}, {.what_if = {.ranks = 5}}), ElementsAre(2, 2, 1));
  EXPECT_THAT(counts({}, {kind_of(1)}, {.ranks_of_machine = 4, .what_if = {.ranks = 8}}), ElementsAre(4, 4));
  EXPECT_THAT(counts({}, {kind_of(1)}, {.what_if = {.nodes = 3}}), ElementsAre(2, 2, 2));
  EXPECT_THAT(counts({}, {kind_of(1)}, {.what_if = {.nodes = 2, .ranks = 6}}), ElementsAre(3, 3));
  EXPECT_THAT(counts({}, {kind_of(1, 4)}, {.what_if = {.gpus = 6}}), ElementsAre(4, 2));
  EXPECT_THAT(counts({}, {kind_of(1, 4)}, {.what_if = {.nodes = 2, .gpus = 6}}), ElementsAre(3, 3));
}

TEST(HypotheticalCluster, RequestsThatContradictEachOtherAreRefused) {
  const auto why = [](const MachineGroup& kind, const ClusterRequest& request, const Settings& settings = {}) {
    return refusal([&] { counts(settings, {kind}, request); });
  };
  EXPECT_THAT(why(kind_of(1), {.what_if = {.gpus = 4}}), HasSubstr("a.xml has no GPU"));
  EXPECT_THAT(why(kind_of(1, 4), {.what_if = {.nodes = 2, .gpus = 9}}), HasSubstr("2 machines have 8 GPUs together"));
  EXPECT_THAT(why(kind_of(1, 4), {.what_if = {.ranks = 3, .gpus = 4}}), HasSubstr("leave one out"));
  EXPECT_THAT(why(kind_of(1), {.ranks = 3, .what_if = {.ranks = 4}}), HasSubstr("write one of the two"));
  EXPECT_THAT(why(kind_of(65'536), {}, with_policy("pack")), HasSubstr("more than the 65536"));
  Settings cpu;
  cpu.placement.device = "cpu";
  EXPECT_THAT(why(kind_of(1, 4), {.what_if = {.gpus = 4}}, cpu), HasSubstr("placement.device"));
  EXPECT_THAT(refusal([] {
                hypothetical_cluster({}, std::vector{kind_of(1), kind_of(1, 0, "b.xml")}, {.what_if = {.ranks = 4}});
              }),
              HasSubstr("2 kinds"));
  MachineGroup bare = kind_of(1);
  bare.topology.cores.clear();
  EXPECT_THAT(why(bare, {}), HasSubstr("a.xml describes no core"));
}

TEST(HypotheticalCluster, MachinesAreCalledByHostAndFile) {
  const PlanInputs inputs = hypothetical_cluster({}, std::vector{kind_of(2)}, {});
  EXPECT_EQ(inputs.topologies[1].host, "host (a.xml:1)");
  EXPECT_NE(inputs.topologies[0].identity, inputs.topologies[1].identity);
}

TEST(HypotheticalCluster, SixtyFiveThousandRanksArePlannedWithinSeconds) {
  MachineGroup kind = kind_of(8192, 8);
  kind.topology.nics = {made_nic("eth0", 0), made_nic("eth1", 1)};
  const Deadline deadline =
      Deadline::after(std::chrono::seconds{20});  // a second is expected, less without a sanitizer
  PlanInputs inputs = hypothetical_cluster({}, std::vector{kind}, {});
  inputs.train_samples = 60'000;
  const Plan plan = make_plan({}, small_mlp(), inputs);
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(plan.ranks.size(), 65'536u);
  EXPECT_EQ(plan.ranks[1].network_device, "eth1");
}

}  // namespace
}  // namespace troupe
