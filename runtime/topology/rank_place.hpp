#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/topology/cpu_set.hpp"

// Where the ranks of jobs are on a machine, and how long their steps take.
namespace troupe::topology {

/// A thread of a rank.
struct ThreadPlace {
  std::string name;
  CpuSet cpus;     // on which it may run
  CpuSet planned;  // to which the plan pins it; empty: any
  friend bool operator==(const ThreadPlace&, const ThreadPlace&) = default;
};

/// The actual and the planned place of a rank's threads, memory and transport, as the rank itself reports it.
struct Placement {
  std::vector<ThreadPlace> threads;
  std::vector<std::uint32_t> planned_numa;       // by the system's numbers; empty: any
  std::map<std::uint32_t, std::uint64_t> pages;  // of a sample of its shared memory, by the system's node number
  std::string memory_refused;                    // the system's error when memory was bound; empty: none
  std::string planned_devices;                   // network devices in the form of UCX_NET_DEVICES; empty: any
  std::string chosen_devices;                    // UCX_NET_DEVICES set by the user, which overrides the plan
  std::vector<std::string> open_devices;         // the devices that the transport has opened
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// What a rank's steps took it, as its run measured them; means per step.
struct RankSteps {
  std::uint64_t steps = 0;  // that were looked at
  std::uint64_t last = 0;   // of these, steps in which it clearly arrived last
  double load_ms = 0;
  double compute_ms = 0;
  double update_ms = 0;
  double copy_ms = 0;
  double exchange_ms = 0;  // waits for other ranks included
  std::string
      slower_part;  // the part that takes it longer than the others, who wait for it; empty: nobody waits for it
  double others_part_ms = 0;  // the other ranks' median of that part; 0: there is no such part
  friend bool operator==(const RankSteps&, const RankSteps&) = default;
};

/// Where one rank of a job runs, from the view of other processes.
struct RankPlace {
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  CpuSet cpus;                                        // on which it may run
  std::map<std::uint32_t, std::uint64_t> numa_bytes;  // its memory, by the system's node number
  std::string gpu;                                    // bus id; empty: not known
  std::string nic;                                    // name of an interface or RDMA device; empty: none chosen
  std::string transports;                             // UCX_TLS; empty: UCX chooses
  std::optional<Placement> placement;                 // absent: the rank did not report it
  std::optional<RankSteps> steps;                     // absent: its run was not asked, or has measured none yet
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

}  // namespace troupe::topology
