// The plan for [[update.group]].

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

Graph three_layers() {
  return {"mlp",
          Shape{{300}},
          DType::f32,
          {{"a", Dense{1000}},
           {"r", Relu{}},
           {"b", Dense{1000}},
           {"s", Relu{}},
           {"c", Dense{10}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

Settings::Group group(std::string name, std::vector<std::string> match) {
  return {
      .name = std::move(name), .match = std::move(match), .update = {}, .compression = {}, .switches = {}, .rule = {}};
}

/// Two ranks on one node, or on two.
Plan plan_of(const Settings& settings, std::uint32_t nodes, const Graph& graph = three_layers()) {
  PlanInputs inputs{.ranks = {}, .topologies = {}, .train_samples = 60000, .test_samples = 10000, .data_bytes = 1};
  for (std::uint32_t n = 0; n < nodes; ++n) {
    Topology topology;
    topology.identity = {"boot", n + 1};
    topology.host = "host";
    for (std::uint32_t c = 0; c < 2; ++c) topology.cores.push_back({.index = c, .cpus = {c}});
    inputs.topologies.push_back(topology);
  }
  for (std::uint32_t r = 0; r < 2; ++r) inputs.ranks.push_back({inputs.topologies[r % nodes].identity, "host"});
  return make_plan(settings, graph, inputs);
}

std::string refusal(const Settings& settings) {
  try {
    (void)plan_of(settings, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    return error.what();
  }
  return {};
}

/// Two batch norms of the usual momentum and one of another.
Graph normalized() {
  return {"normalized",
          Shape{{20}},
          DType::f32,
          {{"a", Dense{30}},
           {"n", BatchNorm{}},
           {"b", Dense{30}},
           {"m", BatchNorm{.momentum = 0.5}},
           {"o", BatchNorm{}},
           {"c", Dense{10}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

TEST(PlanGroups, HaveOneForTheRunningStatisticsOfEachMomentum) {
  Settings settings;
  settings.rule = {.kind = RuleKind::momentum, .rate = 0.1};
  settings.rate.shape = RateShape::cosine;
  settings.no_decay = {"*"};
  settings.groups = {group("norms", {"n.*", "m.*"})};
  settings.groups[0].rule = settings.rule;
  const Plan plan = plan_of(settings, 1, normalized());
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_THAT(plan.groups[0].parameters,
              ElementsAre("a.weight", "a.bias", "b.weight", "b.bias", "o.weight", "o.bias", "c.weight", "c.bias"));
  EXPECT_THAT(plan.groups[1].parameters, ElementsAre("n.weight", "n.bias", "m.weight", "m.bias"));
  EXPECT_THAT(plan.groups[2].parameters,
              ElementsAre("n.running_mean", "n.running_var", "o.running_mean", "o.running_var"));
  EXPECT_THAT(plan.groups[3].parameters, ElementsAre("m.running_mean", "m.running_var"));
  EXPECT_EQ(plan.groups[2].rule, "running average, momentum 0.1");
  EXPECT_EQ(plan.groups[3].rule, "running average, momentum 0.5");
  const std::vector<Settings::Group> all = all_groups(settings, normalized());
  ASSERT_EQ(all.size(), 4u);
  EXPECT_FALSE(all[1].running);
  EXPECT_TRUE(all[3].running);
  const RuleStep step = rule_step(all[3].rule, 1);
  float value = 3, unused = 0;
  update_element(step, 1.0F / 8, -8 * 5.0F, value, unused, unused);
  EXPECT_EQ(value, 4) << "half of the way from 3 to the mean of eight samples, 5";
}

TEST(PlanGroups, AreNotOfRunningStatisticsAlone) {
  Settings settings;
  settings.groups = {group("means", {"*.running_mean"})};
  try {
    (void)plan_of(settings, 1, normalized());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(), HasSubstr("the group \"means\" matches running statistics alone"));
  }
}

TEST(PlanGroups, AverageRunningStatisticsWhereOthersHaveAnOuterMomentum) {
  Settings settings;
  settings.update = {.kind = PolicyKind::diloco, .every_steps = 40};
  settings.switches = {
      {.trigger = PolicySwitch::Trigger::step, .at = 80, .policy = {.kind = PolicyKind::block_momentum}}};
  const Plan plan = plan_of(settings, 1, normalized());
  const std::vector<PolicyPhase>& phases = plan.groups.at(1).policies;
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].policy.kind, PolicyKind::local_sgd);
  EXPECT_EQ(phases[0].policy.every_steps, 40u);
  EXPECT_EQ(phases[1].policy.kind, PolicyKind::model_averaging);
  EXPECT_EQ(phases[1].policy.block_samples, plan.groups[0].policies[1].policy.block_samples);
  settings.update = {.kind = PolicyKind::easgd};
  settings.switches.clear();
  const Plan elastic = plan_of(settings, 1, normalized());
  EXPECT_EQ(elastic.groups[1].policies[0].policy, elastic.groups[0].policies[0].policy);
}

TEST(PlanGroups, HaveTheirParametersTogetherWithStripesAndBucketsOfTheirOwn) {
  Settings settings;
  settings.groups = {group("biases", {"*.bias"})};
  settings.groups[0].update = {.kind = PolicyKind::local_sgd, .every_steps = 4};
  settings.groups[0].rule = {.kind = RuleKind::momentum, .rate = 0.5};
  for (const std::uint32_t nodes : {1u, 2u}) {
    const Plan plan = plan_of(settings, nodes);
    ASSERT_EQ(plan.groups.size(), 2u);
    EXPECT_THAT(plan.groups[0].parameters, ElementsAre("a.weight", "b.weight", "c.weight"));
    EXPECT_THAT(plan.groups[1].parameters, ElementsAre("a.bias", "b.bias", "c.bias"));
    EXPECT_EQ(plan.groups[1].name, "biases");
    EXPECT_EQ(plan.groups[1].kind, RuleKind::momentum);
    EXPECT_EQ(plan.groups[1].policies.at(0).policy.kind, PolicyKind::local_sgd);
    EXPECT_EQ(plan.groups[1].first, plan.groups[0].count);
    for (const GroupPlan& group : plan.groups) {
      std::uint64_t striped = 0, bucketed = 0;
      for (const Stripe& stripe : group.stripes) striped += stripe.count;
      for (const Bucket& bucket : group.buckets) {
        bucketed += bucket.count;
        EXPECT_EQ(bucket.group, group.id);
        EXPECT_EQ(bucket.base, group.first);
      }
      EXPECT_EQ(striped, group.count);
      EXPECT_EQ(bucketed, group.count);
    }
  }
}

TEST(PlanGroups, AreToldOneByOne) {
  Settings settings;
  settings.groups = {group("biases", {"*.bias"})};
  settings.groups[0].update = {.kind = PolicyKind::local_sgd, .every_steps = 4};
  const std::string told = describe(plan_of(settings, 2));
  for (const char* part : {"default: 3 parameters in 1,310,000 elements", "biases: 3 parameters in 2,032 elements",
                           "deltas, every 4 steps, averaged", "gradients, every step, never stale", "direct"})
    EXPECT_THAT(told, HasSubstr(part));
}

TEST(PlanGroups, NeedRoomForWeightsOfARanksOwnWhereOneOfThemDoes) {
  Settings settings;
  settings.groups = {group("biases", {"*.bias"})};
  settings.checkpoint.every_steps = 0;
  const MemoryNeeds together = memory_needs(plan_of(settings, 1), three_layers(), {0});
  EXPECT_EQ(together.weights, 0u);
  settings.groups[0].update = {.kind = PolicyKind::local_sgd};
  const Plan plan = plan_of(settings, 1);
  const MemoryNeeds apart = memory_needs(plan, three_layers(), {0});
  const std::uint64_t all = (plan.groups[0].count + plan.groups[1].count) * sizeof(float);
  EXPECT_EQ(apart.weights, 2 * all);  // and room for what is put aside
  // Only the group that works locally has the whole of its state at every rank.
  EXPECT_EQ(apart.state, 2 * (plan.groups[0].stripes[0].count + plan.groups[1].count) * sizeof(float));
}

TEST(PlanGroups, HaveMemoryForGatheringStatesWhereTheyAreTooSmallThemselves) {
  Settings settings;
  settings.groups = {group("last", {"c.bias"})};  // 10 numbers
  const auto scratch = [&](std::uint32_t nodes) {
    std::vector<std::uint64_t> bytes;
    const Plan plan = plan_of(settings, nodes);
    for (const GroupPlan& each : plan.groups) bytes.push_back(own_scratch_bytes(plan, each));
    return bytes;
  };
  EXPECT_THAT(scratch(1), ElementsAre(0, 0));
  settings.groups[0].update = {.kind = PolicyKind::local_sgd};
  EXPECT_THAT(scratch(1), UnorderedElementsAre(0, 256));  // two lines of 64 bytes for each of two ranks
  EXPECT_THAT(scratch(2), ElementsAre(0, 0));             // which share no memory
}

TEST(PlanGroups, WhosePatternMatchesNothingAreRefused) {
  Settings settings;
  settings.groups = {group("odd", {"*.scale"})};
  EXPECT_THAT(refusal(settings), HasSubstr("no parameter is called \"*.scale\"; there are a.weight"));
}

TEST(PlanGroups, ThatShareAParameterAreRefused) {
  Settings settings;
  settings.groups = {group("biases", {"*.bias"}), group("first", {"a.*"})};
  EXPECT_THAT(refusal(settings), HasSubstr("a.bias is matched by two groups, \"biases\" and \"first\""));
}

TEST(PlanGroups, ThatLeaveNoParameterForTheRestAreRefused) {
  Settings settings;
  settings.groups = {group("biases", {"*.bias"}), group("others", {"*.weight"})};
  EXPECT_THAT(refusal(settings), HasSubstr("none is left for [update]"));
}

TEST(PlanGroups, WhosePolicyCannotWorkAreNamed) {
  Settings settings;
  settings.groups = {group("biases", {"*.bias"})};
  settings.groups[0].update = {.kind = PolicyKind::model_averaging, .block_samples = 10};
  EXPECT_THAT(refusal(settings), HasSubstr("group \"biases\": update.block_samples = 10 is less than one step"));
}

}  // namespace
}  // namespace troupe
