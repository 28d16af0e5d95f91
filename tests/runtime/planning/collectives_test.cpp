// Which jobs exchange over NCCL, and what keeps others from it.

#include <gmock/gmock.h>

#include "runtime/exchange/exchange.hpp"
#include "tests/runtime/planning/placed_nodes.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace troupe::testing;

constexpr std::uint32_t kVersion = 22105;

/// Ranks in processes that see all GPUs of their nodes, whose memory they do not reach.
PlanInputs seen_on(const std::vector<Topology>& nodes, const std::vector<std::uint32_t>& counts) {
  PlanInputs inputs = inputs_on(nodes, counts);
  for (RankFacts& rank : inputs.ranks) {
    const auto node = std::ranges::find(nodes, rank.node, &Topology::identity);
    rank.gpus = node->accelerators;
    rank.nccl = kVersion;
  }
  return inputs;
}

Settings with_collectives(const std::string& collectives) {
  Settings settings;
  settings.placement.device = "cuda";
  settings.cluster.collectives = collectives;
  return settings;
}

Plan plan_of(const Settings& settings, const PlanInputs& inputs) { return make_plan(settings, small_mlp(), inputs); }

TEST(Collectives, RanksWithGpusOfTheirOwnExchangeOverNccl) {
  for (const PlanInputs& inputs :
       {seen_on({with_gpus("a", {0, 1})}, {2}), seen_on({with_gpus("a", {0}), with_gpus("b", {0})}, {1, 1}),
        seen_on({with_gpus("a", {0, 1}), with_gpus("b", {0})}, {2, 1})}) {
    for (const char* const wanted : {"auto", "nccl"}) {
      const Plan plan = plan_of(with_collectives(wanted), inputs);
      EXPECT_EQ(name_of(plan.levels), "nccl");
      ASSERT_EQ(plan.levels.size(), 1U);
      ASSERT_EQ(plan.levels.front().sets.size(), 1U);
      EXPECT_EQ(plan.levels.front().sets.front().size(), plan.ranks.size());
      EXPECT_TRUE(plan.in_gpu_memory) << "they need not reach each other's memory";
      EXPECT_FALSE(plan.shares_memory() || plan.uses_transport() || plan.is_in_one_arena());
      EXPECT_THAT(plan.reasons, Contains(HasSubstr("NCCL exchanges their gradients")));
      EXPECT_THAT(describe(plan), AllOf(HasSubstr("route    nccl"), HasSubstr("NCCL ")));
    }
  }
}

TEST(Collectives, EveryRankOwnsAPartOfEachOfNcclsBuckets) {
  const PlanInputs inputs = seen_on({with_gpus("a", {0, 1})}, {2});
  const Graph wide{"mlp",
                   Shape{{4096}},
                   DType::f32,
                   {{"fc1", Dense{4096}}, {"fc2", Dense{4096}}, {"fc3", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}}};
  const Plan plan = make_plan(with_collectives("auto"), wide, inputs);
  const GroupPlan& group = plan.groups.front();
  ASSERT_EQ(group.buckets.size(), 2U) << "two layers of 64 MB";
  for (const Bucket& bucket : group.buckets)
    for (const RankPlan& rank : plan.ranks) {
      const auto parts = std::ranges::count_if(group.stripes, [&](const Stripe& stripe) {
        return stripe.owner == rank.rank && common_part(stripe, bucket).count > 0;
      });
      EXPECT_EQ(parts, 1) << "bucket " << bucket.index << ", rank " << rank.rank.value;
    }
  // Parameters, gradients, and at each owner the other rank's gradients over its part of the largest bucket.
  EXPECT_GT(plan.ranks[0].gpu_bytes, 2 * group.count * sizeof(float) + group.buckets.back().count / 2 * sizeof(float));
}

TEST(Collectives, NcclAddsUpWhereSeveralGpusOfANodeExchangeWithOtherNodes) {
  const auto adds = [](const PlanInputs& inputs, bool deterministic) {
    Settings settings = with_collectives("nccl");
    settings.train.deterministic = deterministic;
    return plan_of(settings, inputs).nccl_adds;
  };
  const PlanInputs several = seen_on({with_gpus("a", {0, 1}), with_gpus("b", {0})}, {2, 1});
  EXPECT_TRUE(adds(several, false));
  EXPECT_FALSE(adds(several, true));
  EXPECT_FALSE(adds(seen_on({with_gpus("a", {0, 1})}, {2}), false));
  EXPECT_FALSE(adds(seen_on({with_gpus("a", {0}), with_gpus("b", {0})}, {1, 1}), false));
}

TEST(Collectives, NcclStaysWithinNodesWhereItCannotExchangeBetweenThem) {
  const PlanInputs wide = seen_on({with_gpus("a", {0, 1}), with_gpus("b", {0})}, {2, 1});
  const auto plan_with = [&](const char* wanted, Compression compression, std::uint32_t version_on_b) {
    PlanInputs inputs = wide;
    inputs.ranks[2].nccl = version_on_b;
    Settings settings = with_collectives(wanted);
    settings.compression.kind = compression;
    return plan_of(settings, inputs);
  };
  EXPECT_EQ(name_of(plan_with("auto", Compression::none, kVersion).levels), "nccl");
  for (const Plan& plan : {plan_with("auto", Compression::bf16, kVersion), plan_with("auto", Compression::none, 23004),
                           plan_with("nccl_in_nodes", Compression::none, kVersion)}) {
    EXPECT_EQ(name_of(plan.levels), "nccl_in_nodes");
    EXPECT_TRUE(plan.uses_nccl() && plan.uses_transport() && plan.has_two_levels() && plan.in_gpu_memory);
    EXPECT_FALSE(plan.shares_memory() || plan.nccl_adds);
    EXPECT_EQ(plan.levels.front().sets, (std::vector<std::vector<Rank>>{{Rank{0}, Rank{1}}, {Rank{2}}}));
    EXPECT_EQ(plan.levels.back().sets, (std::vector<std::vector<Rank>>{{Rank{0}, Rank{2}}, {Rank{1}, Rank{2}}}));
    EXPECT_THAT(plan.reasons, Contains(HasSubstr("NCCL does not exchange between the nodes: ")));
    EXPECT_THAT(plan.reasons, Contains(HasSubstr("NCCL adds up the gradients of a node's ranks")));
    EXPECT_THAT(describe(plan), AllOf(HasSubstr("route    nccl_in_nodes"), HasSubstr("which NCCL gives to the node")));
  }
  EXPECT_EQ(name_of(plan_with("auto", Compression::none, 0).levels), "hierarchical") << "rank 2 has no library";
  EXPECT_THAT(refusal([&] { (void)plan_with("nccl_in_nodes", Compression::none, 0); }, Code::environment),
              HasSubstr("\"nccl_in_nodes\": NCCL cannot be used: rank 2 on node b finds no usable libnccl.so.2"));
  const PlanInputs thin = seen_on({with_gpus("a", {0}), with_gpus("b", {0})}, {1, 1});
  EXPECT_THAT(refusal([&] { (void)plan_of(with_collectives("nccl_in_nodes"), thin); }),
              HasSubstr("no node has several ranks"));
}

struct Obstacle {
  const char* name;
  std::function<void(Settings&, PlanInputs&)> put;
  const char* why;
  Code code = Code::invalid;
};

TEST(Collectives, WhatKeepsRanksFromNcclIsToldAndWhereItIsWantedAnError) {
  const std::vector<Obstacle> obstacles{
      {"one GPU for two ranks", [](Settings&, PlanInputs& inputs) { inputs.ranks[1].gpus->resize(1); },
       "ranks 0 and 1 on node a share the GPU at 0000:10:00.0"},
      {"shards", [](Settings& settings, PlanInputs&) { settings.update.kind = PolicyKind::async; }, "hosting shards"},
      {"compression", [](Settings& settings, PlanInputs&) { settings.compression.kind = Compression::bf16; },
       "is compressed (update.compress)"},
      {"rounds beside the steps of two groups",
       [](Settings& settings, PlanInputs&) {
         settings.update.kind = PolicyKind::double_buffered;
         Settings::Group& group = settings.groups.emplace_back();
         group.name = "first";
         group.match = {"fc1.*"};
       },
       "there are 2 groups, and a policy whose rounds run beside the next step"},
      {"no library", [](Settings&, PlanInputs& inputs) { inputs.ranks[1].nccl = 0; },
       "rank 1 on node a finds no usable libnccl.so.2", Code::environment},
      {"two versions", [](Settings&, PlanInputs& inputs) { inputs.ranks[1].nccl = 23004; },
       "rank 1 on node a has NCCL 2.30.4, ranks before it have 2.21.5", Code::environment},
  };
  for (const Obstacle& obstacle : obstacles) {
    SCOPED_TRACE(obstacle.name);
    const auto plan_with = [&](const char* wanted) {
      Settings settings = with_collectives(wanted);
      PlanInputs inputs = seen_on({with_gpus("a", {0, 1})}, {2});
      obstacle.put(settings, inputs);
      return plan_of(settings, inputs);
    };
    const Plan plan = plan_with("auto");
    EXPECT_EQ(name_of(plan.levels), "arena");
    EXPECT_THAT(plan.reasons, Contains(AllOf(HasSubstr("NCCL is not used: "), HasSubstr(obstacle.why))));
    EXPECT_THAT(refusal([&] { (void)plan_with("nccl"); }, obstacle.code),
                AllOf(HasSubstr("cluster.collectives = \"nccl\": "), HasSubstr(obstacle.why)));
  }
}

TEST(Collectives, RanksOnCpusAndSingleRanksHearOfNcclOnlyWhereItIsWanted) {
  PlanInputs mixed = seen_on({with_gpus("a", {0}), made_node("b")}, {1, 1});
  PlanInputs alone = seen_on({with_gpus("a", {0})}, {1});
  for (const auto& [inputs, why] :
       {std::pair{mixed, "rank 1 on node b computes on a CPU"}, std::pair{alone, "one rank exchanges nothing"}}) {
    Settings settings = with_collectives("auto");
    settings.placement.device = "auto";
    const Plan plan = plan_of(settings, inputs);
    EXPECT_FALSE(plan.uses_nccl());
    EXPECT_THAT(plan.reasons, Not(Contains(HasSubstr("NCCL"))));
    settings.cluster.collectives = "nccl";
    EXPECT_THAT(refusal([&] { (void)plan_of(settings, inputs); }), HasSubstr(why));
  }
}

TEST(Collectives, OwnOnesAreUsedWhereTheyAreWanted) {
  const Plan plan = plan_of(with_collectives("own"), seen_on({with_gpus("a", {0, 1})}, {2}));
  EXPECT_EQ(name_of(plan.levels), "arena");
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("NCCL is not used: cluster.collectives = \"own\"")));
}

TEST(Collectives, ANodesNetworkIsChosenForMessagesBesideNccl) {
  Topology a = with_gpus("a", {0}), b = with_gpus("b", {0});
  for (Topology* const node : {&a, &b}) node->nics = {made_nic("eth0", 0, node == &a ? "10.1.0.1" : "10.1.0.2")};
  const Plan plan = plan_of(with_collectives("auto"), seen_on({a, b}, {1, 1}));
  ASSERT_TRUE(plan.uses_nccl());
  EXPECT_EQ(plan.ranks[1].network_device, "eth0");
}

}  // namespace
}  // namespace troupe
