#include "runtime/planning/hypothetical_cluster.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

std::map<std::uint32_t, std::uint32_t> cores_by_numa(const Topology& topology) {
  std::map<std::uint32_t, std::uint32_t> cores;
  for (const Core& core : topology.cores)
    if (!core.cpus.empty()) ++cores[core.numa];
  return cores;
}

/// The number of ranks that the policy gives a machine.
std::uint32_t ranks_by_policy(const Settings::Placement& placement, const MachineGroup& kind) {
  const auto cores = cores_by_numa(kind.topology);
  TROUPE_CHECK(!cores.empty(), Code::invalid, kind.source,
               " describes no core that a job may use, and ranks need cores; use a description with processors (lstopo "
               "FILE.xml, or rttopo show --json)");
  const auto numa_nodes = static_cast<std::uint32_t>(cores.size());
  if (placement.policy == "auto" && placement.device != "cpu" && !kind.topology.accelerators.empty())
    return static_cast<std::uint32_t>(kind.topology.accelerators.size());
  if (placement.policy != "pack") return numa_nodes;
  const std::uint32_t each = std::max(1u, placement.cores);
  std::uint32_t within_numa = 0;
  for (const auto& [numa, count] : cores) within_numa += count / each;
  const auto all = static_cast<std::uint32_t>(kind.topology.cores.size());
  return within_numa > 0 ? within_numa : std::max(1u, all / each);
}

/// The machines one by one.
struct Machines {
  std::vector<const MachineGroup*> kinds;
  std::vector<std::uint32_t> rooms;  // number of ranks for each
  std::uint64_t room() const { return std::accumulate(rooms.begin(), rooms.end(), std::uint64_t{0}); }
};

Machines one_by_one(std::span<const MachineGroup> kinds, const std::vector<std::uint32_t>& rooms) {
  Machines machines;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    machines.kinds.insert(machines.kinds.end(), kinds[k].count, &kinds[k]);
    machines.rooms.insert(machines.rooms.end(), kinds[k].count, rooms[k]);
  }
  return machines;
}

using Counts = std::vector<std::uint32_t>;  // of ranks, by machine

Counts equal_counts(std::uint32_t ranks, std::size_t machines) {
  Counts counts(machines, ranks / static_cast<std::uint32_t>(machines));
  for (std::size_t i = 0; i < ranks % machines; ++i) ++counts[i];
  return counts;
}

/// Fills one machine after the other.
Counts filled_counts(std::uint32_t ranks, const std::vector<std::uint32_t>& rooms) {
  Counts counts;
  for (const std::uint32_t room : rooms) {
    counts.push_back(std::min(room, ranks));
    ranks -= counts.back();
  }
  return counts;
}

Counts counts_on(const Settings::Placement& placement, const Machines& machines, std::uint32_t ranks) {
  if (placement.policy != "pack") return equal_counts(ranks, machines.kinds.size());
  TROUPE_CHECK(machines.room() >= ranks, Code::invalid, "placement.policy = \"pack\" has room for ", machines.room(),
               " ranks on ", machines.kinds.size(), machines.kinds.size() == 1 ? " machine" : " machines", " (",
               machines.kinds.front()->source, machines.kinds.back() == machines.kinds.front() ? ")" : ", ...)",
               ", each of ", std::max(1u, placement.cores), " of its cores; ", ranks, " do not fit");
  return filled_counts(ranks, machines.rooms);
}

/// As many machines of the one kind as `ranks` ranks need.
Counts imagined(const Settings::Placement& placement, MachineGroup& kind, std::uint32_t room, const WhatIf& what_if,
                std::uint32_t ranks) {
  if (what_if.nodes == 0) kind.count = (ranks + room - 1) / room;
  const Machines machines = one_by_one(std::span{&kind, 1}, {room});
  return what_if.nodes == 0 ? filled_counts(ranks, machines.rooms) : counts_on(placement, machines, ranks);
}

void check_wishes(const Settings::Placement& placement, std::span<const MachineGroup> kinds,
                  const ClusterRequest& request) {
  const WhatIf& what_if = request.what_if;
  const bool imagines = what_if.nodes != 0 || what_if.ranks != 0 || what_if.gpus != 0;
  TROUPE_CHECK(!imagines || kinds.size() == 1, Code::invalid,
               "what-if numbers need machines of one kind, and there are ", kinds.size(), " kinds; name one");
  TROUPE_CHECK(request.ranks == 0 || (what_if.ranks == 0 && what_if.gpus == 0), Code::invalid,
               "a number of ranks is for given machines, while what-if ranks or gpus sets the number of machines; "
               "write one of the two");
  if (what_if.gpus == 0) return;
  TROUPE_CHECK(what_if.ranks == 0 || what_if.ranks == what_if.gpus, Code::invalid, "what-if gpus = ", what_if.gpus,
               " makes a rank for each GPU, and so sets the number of ranks, as does ranks = ", what_if.ranks,
               "; leave one out");
  TROUPE_CHECK(placement.device != "cpu", Code::invalid, "what-if gpus = ", what_if.gpus,
               " places ranks near GPUs, which placement.device = \"cpu\" leaves out; write \"auto\"");
  const MachineGroup& kind = kinds.front();
  TROUPE_CHECK(!kind.topology.accelerators.empty(), Code::invalid, "what-if gpus = ", what_if.gpus, ": ", kind.source,
               " has no GPU; name a machine with GPUs (--nodes FILE)");
  const std::uint64_t there = std::uint64_t{what_if.nodes} * kind.topology.accelerators.size();
  TROUPE_CHECK(what_if.nodes == 0 || there >= what_if.gpus, Code::invalid, "what-if gpus = ", what_if.gpus, ": ",
               what_if.nodes, what_if.nodes == 1 ? " machine has " : " machines have ", there, " GPUs together");
}

/// A machine's name: its host; if there are several machines, also the file.
std::string title_of(const MachineGroup& kind, std::uint32_t number, bool several) {
  std::string file = std::filesystem::path{kind.source}.filename();
  if (kind.count > 1) file += text(':', number);
  if (kind.topology.host.empty()) return file;
  return several ? text(kind.topology.host, " (", file, ')') : kind.topology.host;
}

/// The number of ranks on each machine.
Counts share_out(const Settings::Placement& placement, std::vector<MachineGroup>& kinds,
                 const ClusterRequest& request) {
  const WhatIf& what_if = request.what_if;
  if (what_if.nodes != 0) kinds.front().count = what_if.nodes;
  const Settings::Placement::Mesh& mesh = placement.mesh;
  std::vector<std::uint32_t> rooms;
  for (const MachineGroup& kind : kinds) {
    const std::uint32_t by_policy = ranks_by_policy(placement, kind);
    rooms.push_back(mesh.ranks != 0                 ? mesh.ranks
                    : request.ranks_of_machine != 0 ? request.ranks_of_machine
                                                    : by_policy);
  }
  if (what_if.gpus != 0) {
    const auto devices = static_cast<std::uint32_t>(kinds.front().topology.accelerators.size());
    return imagined(placement, kinds.front(), devices, what_if, what_if.gpus);
  }
  if (what_if.ranks != 0) return imagined(placement, kinds.front(), rooms.front(), what_if, what_if.ranks);
  const Machines machines = one_by_one(kinds, rooms);
  if (request.ranks != 0) return counts_on(placement, machines, request.ranks);
  Counts counts = machines.rooms;
  if (mesh.nodes == 0) return counts;
  TROUPE_CHECK(mesh.nodes <= counts.size(), Code::invalid, "placement.mesh = \"", mesh.nodes, 'x', mesh.ranks,
               "\" asks for ", mesh.nodes, " nodes, and there ", counts.size() == 1 ? "is " : "are ", counts.size());
  std::fill(counts.begin() + mesh.nodes, counts.end(), 0);
  return counts;
}

}  // namespace

PlanInputs hypothetical_cluster(const Settings::Placement& placement, std::span<const MachineGroup> machines,
                                const ClusterRequest& request) {
  TROUPE_CHECK(!machines.empty(), Code::invalid, "a cluster needs at least one machine");
  check_wishes(placement, machines, request);
  std::vector<MachineGroup> kinds{machines.begin(), machines.end()};
  const Counts counts = share_out(placement, kinds, request);
  const std::uint64_t ranks = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  TROUPE_CHECK(ranks <= kMostHypotheticalRanks, Code::invalid, ranks, " ranks are more than the ",
               kMostHypotheticalRanks, " that a plan can have");
  PlanInputs inputs;
  std::size_t next = 0;  // index of the next machine
  for (const MachineGroup& kind : kinds) {
    for (std::uint32_t i = 0; i < kind.count; ++i) {
      const std::uint32_t count = counts[next++];
      if (count == 0) continue;
      Topology& made = inputs.topologies.emplace_back(kind.topology);
      made.host = title_of(kind, i, counts.size() > 1);
      made.identity = {text(kind.source, ", machine ", next - 1), 0};
      inputs.ranks.insert(inputs.ranks.end(), count, RankFacts{made.identity, made.host});
    }
  }
  return inputs;
}

}  // namespace troupe
