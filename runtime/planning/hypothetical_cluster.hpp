#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/config/settings.hpp"
#include "runtime/planning/planner.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// Machines of one kind: real ones, or ones to imagine.
struct MachineGroup {
  std::string source;  // the file that describes them, or "this host"
  std::uint32_t count = 1;
  Topology topology;  // its identity is ignored
};

/// Numbers to plan for instead of the real ones; 0: the real number.
struct WhatIf {
  std::uint32_t nodes = 0;
  std::uint32_t ranks = 0;
  std::uint32_t gpus = 0;
};

struct ClusterRequest {
  std::uint32_t ranks = 0;             // on the real machines; 0: as many as the machines should have
  std::uint32_t ranks_of_machine = 0;  // 0: as given by placement.mesh, or else by placement.policy
  WhatIf what_if;
};

inline constexpr std::uint32_t kMostHypotheticalRanks = 65'536;

/// The nodes and ranks of a job that is not started: `machines` one after the other, each with its ranks. A machine
/// gets the number in placement.mesh, or else depends on placement.policy: auto one for each GPU, or for each NUMA node
/// if it has no GPU; spread one for each NUMA node; pack as many as its cores suffice for. With what-if numbers there
/// are as many machines of the kind as needed. Data sizes stay 0. Throws Error{invalid}, which names what contradicts.
PlanInputs hypothetical_cluster(const Settings::Placement& placement, std::span<const MachineGroup> machines,
                                const ClusterRequest& request);

}  // namespace troupe
