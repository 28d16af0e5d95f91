#include "runtime/planning/plan.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

namespace troupe {
namespace {

Plan some_plan() {
  Plan plan;
  plan.model = "graph \"mlp\"";
  plan.batch = 100;
  plan.nodes = {{{"boot", 7}, "host", 0}};
  plan.ranks = {{.rank = {0}, .device = "cpu", .cpus = {0, 1}},
                {.rank = {1}, .local_rank = 1, .device = "cpu", .cpus = {2}}};
  plan.levels = {{LevelMeans::arena, {{{0}, {1}}}}};
  plan.groups = {{.rule = "adam(rate=0.001)",
                  .count = 1536,
                  .stripes = {{{0}, {0}, 0, 1024}, {{0}, {1}, 1024, 512}},
                  .buckets = {{{0}, 0, 0, 1536}}}};
  plan.reasons = {"because"};
  return plan;
}

TEST(Plan, EqualPlansHaveOneHashAndOneText) {
  EXPECT_EQ(some_plan().to_string(), some_plan().to_string());
  EXPECT_EQ(some_plan().hash(), some_plan().hash());
}

TEST(Plan, EveryChangeChangesTextAndHash) {
  const std::vector<std::function<void(Plan&)>> changes{
      [](Plan& p) { p.model += "x"; },
      [](Plan& p) { p.dtype = DType::bf16; },
      [](Plan& p) { p.groups[0].rule = "sgd"; },
      [](Plan& p) { p.groups[0].kind = RuleKind::adamw; },
      [](Plan& p) { p.groups[0].name = "others"; },
      [](Plan& p) { p.groups[0].first = 16; },
      [](Plan& p) { p.groups[0].compression.kind = Compression::bf16; },
      [](Plan& p) { p.groups[0].count = 1552; },
      [](Plan& p) { p.groups[0].policies.emplace_back(); },
      [](Plan& p) { p.groups.push_back(p.groups[0]); },
      [](Plan& p) { p.parameters = 1; },
      [](Plan& p) { p.training_flops = 1; },
      [](Plan& p) { p.batch = 101; },
      [](Plan& p) { p.prefetch = 9; },
      [](Plan& p) { p.scatter = Scatter::exact; },
      [](Plan& p) { p.node_loader = true; },
      [](Plan& p) { p.train_samples = 5; },
      [](Plan& p) { p.test_samples = 5; },
      [](Plan& p) { p.data_bytes = 5; },
      [](Plan& p) { p.steps = 5; },
      [](Plan& p) { p.seed = 5; },
      [](Plan& p) { p.deterministic = true; },
      [](Plan& p) { p.in_gpu_memory = true; },
      [](Plan& p) { p.nccl_adds = true; },
      [](Plan& p) { p.nodes[0].identity.boot_id = "other"; },
      [](Plan& p) { p.nodes[0].identity.network_namespace = 8; },
      [](Plan& p) { p.nodes[0].host = "other"; },
      [](Plan& p) { p.nodes[0].leader = 1; },
      [](Plan& p) { p.nodes.push_back(p.nodes[0]); },
      [](Plan& p) { p.ranks[0].rank.value = 4; },
      [](Plan& p) { p.ranks[0].node = 4; },
      [](Plan& p) { p.ranks[0].local_rank = 4; },
      [](Plan& p) { p.ranks[0].device = "cuda"; },
      [](Plan& p) {
        p.ranks[0].cpus = {1, 0};
      },
      [](Plan& p) { p.ranks[0].cpus = {0}; },
      [](Plan& p) { p.ranks[0].device_threads = 4; },
      [](Plan& p) { p.ranks[0].control_cpus = {4}; },
      [](Plan& p) { p.ranks[0].bulk_cpus = {4}; },
      [](Plan& p) { p.ranks[0].may_spin = true; },
      [](Plan& p) { p.ranks[0].numa_nodes = {4}; },
      [](Plan& p) { p.ranks[0].network_device = "eth0"; },
      [](Plan& p) { p.ranks[0].accelerator = "GPU 0"; },
      [](Plan& p) { p.nodes[0].memory_there = 4; },
      [](Plan& p) { p.nodes[0].memory_used = 4; },
      [](Plan& p) { p.nodes[0].numa = {{.os_index = 0, .there = 1, .used = 0}}; },
      [](Plan& p) { p.nodes[0].numa = {{.os_index = 0, .there = 0, .used = 1}}; },
      [](Plan& p) { p.nodes[0].numa = {{.os_index = 1, .there = 0, .used = 1}}; },
      [](Plan& p) { p.ranks[0].gpu = "0000:3b:00.0"; },
      [](Plan& p) { p.ranks[0].gpu_bytes = 4; },
      [](Plan& p) { p.nodes[0].gpus = {{.bus = "0000:3b:00.0", .there = 1, .used = 0}}; },
      [](Plan& p) { p.nodes[0].gpus = {{.bus = "0000:3b:00.0", .there = 0, .used = 1}}; },
      [](Plan& p) { p.ranks[0].arena_bytes = 4; },
      [](Plan& p) { p.ranks[0].memory_bytes = 4; },
      [](Plan& p) { p.ranks.pop_back(); },
      [](Plan& p) { p.levels.front().means = LevelMeans::transport; },
      [](Plan& p) { p.levels.front().means = LevelMeans::nccl; },
      [](Plan& p) {
        p.levels.front().sets = {{{0}}, {{1}}};
      },
      [](Plan& p) { p.levels.push_back(p.levels.front()); },
      [](Plan& p) { p.groups[0].stripes[1].owner = {0}; },
      [](Plan& p) { p.groups[0].stripes[1].count = 4; },
      [](Plan& p) { p.groups[0].buckets[0].count = 4; },
      [](Plan& p) { p.groups[0].buckets[0].group = {1}; },
      [](Plan& p) { p.reasons[0] = "why not"; },
      [](Plan& p) { p.reasons[0] += "\"\n\""; },
      [](Plan& p) { p.reasons.clear(); },
  };
  std::set<std::string> texts{some_plan().to_string()};
  std::set<std::uint64_t> hashes{some_plan().hash()};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Plan plan = some_plan();
    changes[i](plan);
    EXPECT_TRUE(texts.insert(plan.to_string()).second) << "change " << i;
    EXPECT_TRUE(hashes.insert(plan.hash()).second) << "change " << i;
  }
}

}  // namespace
}  // namespace troupe
