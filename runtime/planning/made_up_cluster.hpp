#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/config/settings.hpp"
#include "runtime/planning/planner.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// Machines that are alike, as many as are named or imagined.
struct MachineKind {
  std::string source;  // the file that tells of them; "this host"
  std::uint32_t count = 1;
  Topology topology;  // its identity does not count
};

/// Numbers to plan for in place of those that are there; 0: as it is.
struct WhatIf {
  std::uint32_t nodes = 0;
  std::uint32_t ranks = 0;
  std::uint32_t gpus = 0;
};

struct ClusterRequest {
  std::uint32_t ranks = 0;             // on the machines that there are; 0: each gets as many as it is to have
  std::uint32_t ranks_of_machine = 0;  // 0: as placement.mesh, or else placement.policy, says
  WhatIf what_if;
};

inline constexpr std::uint32_t kMostMadeUpRanks = 65'536;

/// The nodes and ranks of a job that nobody has started: `machines` one after the other, each with its ranks. A machine
/// gets as many as placement.mesh says, or by placement.policy: auto one for each GPU, or for each NUMA node where it
/// has none; spread one for each NUMA node; pack as many as its cores suffice for. Numbers to imagine make as many
/// machines of the kind as they need. Data sizes stay 0. Throws Error{invalid} naming what does not go together.
PlanInputs made_up_cluster(const Settings::Placement& placement, std::span<const MachineKind> machines,
                           const ClusterRequest& request);

}  // namespace troupe
