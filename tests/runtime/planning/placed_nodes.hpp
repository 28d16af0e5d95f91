#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/error.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe::testing {

inline Graph small_mlp() {
  return {"mlp",
          Shape{{784}},
          DType::f32,
          {{"fc1", Dense{1000}}, {"relu1", Relu{}}, {"fc2", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}}};
}

struct NodeShape {
  std::uint32_t numa = 2;
  std::uint32_t cores_of_numa = 8;
  std::uint32_t cores_of_cache = 4;
};

/// A node of 64 GB a NUMA node, whose processors have the numbers of their cores.
inline Topology made_node(const std::string& host, NodeShape shape = {}) {
  Topology topology;
  topology.identity = {"boot of " + host, 4026531840};
  topology.host = host;
  for (std::uint32_t n = 0; n < shape.numa; ++n) {
    topology.numa.push_back({n, 64'000'000'000});
    for (std::uint32_t i = 0; i < shape.cores_of_numa; ++i) {
      const std::uint32_t number = n * shape.cores_of_numa + i;
      topology.cores.push_back({.index = number, .numa = n, .cpus = {number}, .l3 = number / shape.cores_of_cache});
    }
  }
  return topology;
}

/// A node with one GPU for each number, which is that of its NUMA node.
inline Topology with_gpus(const std::string& host, std::initializer_list<std::int32_t> numa) {
  Topology node = made_node(host);
  for (const std::int32_t each : numa) {
    const std::size_t number = node.accelerators.size();
    node.accelerators.push_back({.name = text("GPU ", number),
                                 .model = "H100",
                                 .memory_bytes = 80'000'000'000,
                                 .numa = each,
                                 .nearest_nics = {},
                                 .bus = text("0000:1", number, ":00.0"),
                                 .vendor = "nvidia",
                                 .cuda = true});
  }
  return node;
}

inline Nic made_nic(std::string name, std::int32_t numa, std::string address = {}, std::string infiniband = {}) {
  return {.name = std::move(name),
          .address = std::move(address),
          .numa = numa,
          .bits_per_second = 100'000'000'000,
          .up = true,
          .infiniband = std::move(infiniband)};
}

/// `counts[i]` ranks on node i, one node after the other.
inline PlanInputs inputs_on(const std::vector<Topology>& nodes, const std::vector<std::uint32_t>& counts) {
  PlanInputs inputs{.topologies = nodes, .train_samples = 60000, .test_samples = 10000, .data_bytes = 55'000'000};
  for (std::size_t n = 0; n < nodes.size(); ++n)
    inputs.ranks.insert(inputs.ranks.end(), counts[n], RankFacts{nodes[n].identity, nodes[n].host});
  return inputs;
}

inline Settings with_policy(const std::string& policy, std::uint32_t cores = 0) {
  Settings settings;
  settings.placement.policy = policy;
  settings.placement.cores = cores;
  return settings;
}

/// The message of the Error{code} that `work` throws.
inline std::string refusal(const std::function<void()>& work, Code code = Code::invalid) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

/// What holds for every plan: cores that are there and allowed, none twice unless ranks share all that there is,
/// memory of NUMA nodes that are there and, where a rank has cores of one alone, of that one, NICs that are there and
/// up, accelerators that are there, each once.
inline void expect_sound(const Plan& plan, const std::vector<Topology>& topologies) {
  for (std::uint32_t n = 0; n < plan.nodes.size(); ++n) {
    const auto at = std::find_if(topologies.begin(), topologies.end(),
                                 [&](const Topology& t) { return t.identity == plan.nodes[n].identity; });
    ASSERT_NE(at, topologies.end());
    std::map<std::uint32_t, const Core*> core_of;
    for (const Core& core : at->cores)
      for (const std::uint32_t cpu : core.cpus) core_of[cpu] = &core;
    std::map<const Core*, std::set<std::string>> users;
    std::set<std::string> accelerators;
    std::size_t ranks = 0;
    for (const RankPlan& rank : plan.ranks) {
      if (rank.node != n) continue;
      ++ranks;
      ASSERT_FALSE(rank.cpus.empty());
      std::set<std::uint32_t> numa;
      for (const auto& [kind, cpus] :
           {std::pair{"", &rank.cpus}, {" control", &rank.control_cpus}, {" bulk", &rank.bulk_cpus}}) {
        for (const std::uint32_t cpu : *cpus) {
          ASSERT_TRUE(core_of.contains(cpu)) << "processor " << cpu;
          users[core_of[cpu]].insert(std::to_string(rank.rank.value) + kind);
          if (cpus == &rank.cpus && core_of[cpu]->numa < at->numa.size())
            numa.insert(at->numa[core_of[cpu]->numa].os_index);
        }
      }
      if (!rank.numa_nodes.empty()) {
        EXPECT_EQ(std::set(rank.numa_nodes.begin(), rank.numa_nodes.end()), numa);
      }
      if (!rank.network_device.empty()) {
        EXPECT_TRUE(std::any_of(at->nics.begin(), at->nics.end(), [&](const Nic& nic) {
          return nic.up && is_called(nic, rank.network_device);
        })) << rank.network_device;
      }
      if (rank.accelerator.empty()) continue;
      EXPECT_TRUE(accelerators.insert(rank.accelerator).second) << rank.accelerator;
      EXPECT_TRUE(std::any_of(at->accelerators.begin(), at->accelerators.end(),
                              [&](const Accelerator& device) { return device.name == rank.accelerator; }));
    }
    if (ranks > at->cores.size()) continue;
    for (const auto& [core, who] : users) EXPECT_EQ(who.size(), 1u) << "core " << core->index;
  }
}

}  // namespace troupe::testing
