#include "runtime/planning/detail/fit_memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/planning/detail/amounts.hpp"

namespace troupe::detail {
namespace {

std::string bytes_words(std::uint64_t bytes) { return scaled(static_cast<double>(bytes), "B"); }

struct HostMemory {
  std::uint64_t there = 0;
  bool is_granted = false;  // by a control group, whose limit is below the host's memory
};

HostMemory memory_of_host(const Topology& host) {
  HostMemory memory;
  for (const NumaNode& numa : host.numa) memory.there += numa.memory_bytes;
  memory.there = std::max(memory.there, host.memory_bytes);
  memory.is_granted = host.memory_limit_bytes > 0 && (memory.there == 0 || host.memory_limit_bytes < memory.there);
  if (memory.is_granted) memory.there = host.memory_limit_bytes;
  return memory;
}

std::vector<NumaUse> numa_with_cores(const Topology& host) {
  std::set<std::uint32_t> with_cores;
  for (const Core& core : host.cores) with_cores.insert(core.numa);
  std::vector<NumaUse> uses;
  for (const std::uint32_t numa : with_cores)
    if (numa < host.numa.size())
      uses.push_back({.os_index = host.numa[numa].os_index, .there = host.numa[numa].memory_bytes});
  if (uses.size() == 1 && host.numa.size() == 1 && uses[0].there != 0)
    uses[0].there = std::max(uses[0].there, host.memory_bytes);
  return uses;
}

NumaUse* use_of(std::vector<NumaUse>& uses, const RankPlan& rank) {
  if (rank.numa_nodes.size() != 1) return nullptr;
  const auto at = std::find_if(uses.begin(), uses.end(),
                               [&](const NumaUse& use) { return use.os_index == rank.numa_nodes.front(); });
  return at == uses.end() ? nullptr : &*at;
}

constexpr const char* kLessMemory =
    "; use fewer ranks there, a smaller data.batch or model, or data.loader = \"node\", with which ranks of a node "
    "read "
    "the data once";

/// The ranks and nodes of one host: its network namespaces are separate nodes, but share its memory.
struct Host {
  std::vector<std::size_t> nodes;
  std::vector<std::size_t> ranks;
};

void check_numa(Plan& plan, const Settings::Placement& placement, const Host& host, const Topology& topology,
                std::span<const std::uint64_t> used) {
  const std::string& name = plan.nodes[host.nodes.front()].host;
  std::vector<NumaUse> uses = numa_with_cores(topology);
  for (const std::size_t r : host.ranks)
    if (NumaUse* const use = use_of(uses, plan.ranks[r])) use->used += used[r];
  for (const NumaUse& use : uses) {
    if (use.there == 0 || use.used <= use.there) continue;
    const std::string found = text("NUMA node ", use.os_index, " has ", bytes_words(use.there),
                                   ", and the ranks on its cores take ", bytes_words(use.used));
    TROUPE_CHECK(placement.policy == "auto", Code::invalid, "node ", name, ": ", found, kLessMemory,
                 "; with placement.policy = \"auto\" they take memory of other NUMA nodes too");
    plan.reasons.push_back(text("Node ", name, ": ", found, ", so their memory comes from anywhere."));
    for (const std::size_t r : host.ranks)
      if (plan.ranks[r].numa_nodes == std::vector{use.os_index}) plan.ranks[r].numa_nodes.clear();
  }
}

}  // namespace

void fit_memory(Plan& plan, const Settings::Placement& placement, std::span<const Topology* const> nodes,
                std::span<const std::uint64_t> used) {
  std::map<std::string, Host> hosts;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) hosts[plan.nodes[n].identity.boot_id].nodes.push_back(n);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r)
    hosts.at(plan.nodes[plan.ranks[r].node].identity.boot_id).ranks.push_back(r);
  for (const auto& [boot_id, host] : hosts) {
    const Topology& topology = *nodes[host.nodes.front()];
    const HostMemory memory = memory_of_host(topology);
    std::uint64_t all = 0;
    for (const std::size_t r : host.ranks) all += used[r];
    TROUPE_CHECK(memory.there == 0 || all <= memory.there, Code::invalid, "node ", plan.nodes[host.nodes.front()].host,
                 memory.is_granted ? ": a control group grants " : " has ", bytes_words(memory.there),
                 " of memory, and its ", host.ranks.size(), host.ranks.size() == 1 ? " rank takes " : " ranks take ",
                 bytes_words(all), kLessMemory);
    check_numa(plan, placement, host, topology, used);
    for (const std::size_t n : host.nodes) {
      plan.nodes[n].memory_there = memory.there;
      plan.nodes[n].numa = numa_with_cores(topology);
    }
    for (const std::size_t r : host.ranks) {
      NodePlan& node = plan.nodes[plan.ranks[r].node];
      node.memory_used += used[r];
      if (NumaUse* const use = use_of(node.numa, plan.ranks[r])) use->used += used[r];
    }
  }
}

}  // namespace troupe::detail
