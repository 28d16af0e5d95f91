#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/data/sample_ledger.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/exchange/compression/compression_settings.hpp"
#include "runtime/exchange/exchange_level.hpp"
#include "runtime/exchange/policies/policy.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// The placement of one rank.
struct RankPlan {
  Rank rank;
  std::uint32_t node = 0;            // index into Plan::nodes
  std::uint32_t local_rank = 0;      // on its node, from 0
  std::string device;                // cpu, cuda
  std::string gpu;                   // PCI bus id of the GPU that it computes on; empty: none
  std::vector<std::uint32_t> cpus;   // the process's threads, the loader's included, are pinned to these, except lanes
                                     // that have CPUs of their own
  std::uint32_t device_threads = 1;  // threads of a CPU device
  std::vector<std::uint32_t> control_cpus;  // the control lane's own, where it polls; empty: uses `cpus`, and sleeps
  std::vector<std::uint32_t> bulk_cpus;     // the bulk lane's own CPUs; empty: uses `cpus`
  bool may_spin = false;                    // waits may poll, because there is a core for it
  std::vector<std::uint32_t> numa_nodes;    // NUMA nodes for its arenas and buffers, by the system's numbers,
                                            // ascending; empty: any
  std::string network_device;               // used by its transport: an interface (eth0), or a port of an RDMA device
                                            // (mlx5_0:1); empty: any
  std::string accelerator;                  // near its cores, as named in its file, or its own GPU; empty: none
  std::uint64_t arena_bytes = 0;            // shared with its node: gradients, stripe state, pool
  std::uint64_t memory_bytes = 0;  // all that it will use of the host's, including the data set, without libraries
  std::uint64_t gpu_bytes = 0;     // all that it will use of its GPU's memory, likewise
  /// Whether it computes on an NVIDIA GPU; `gpu` says on which.
  bool on_gpu() const noexcept { return device == "cuda"; }
  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

/// The memory of a NUMA node, and how much of it is used by ranks that get memory from no other node, in bytes.
struct NumaUse {
  std::uint32_t os_index = 0;
  std::uint64_t there = 0;  // memory that exists; 0: unknown
  std::uint64_t used = 0;
  friend bool operator==(const NumaUse&, const NumaUse&) = default;
};

/// The memory of a GPU that ranks compute on, and how much of it they use, in bytes.
struct GpuUse {
  std::string bus;          // PCI bus id
  std::string model;        // may be empty
  std::uint64_t there = 0;  // 0: unknown
  std::uint64_t used = 0;
  friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

struct NodePlan {
  NodeIdentity identity;
  std::string host;
  std::uint32_t leader = 0;        // the rank whose arena contains the node's parameters
  std::uint64_t memory_there = 0;  // of the host, or a cgroup's limit if that is less, in bytes; 0: unknown
  std::uint64_t memory_used = 0;   // by all its ranks
  std::vector<NumaUse> numa;       // those with cores
  std::vector<GpuUse> gpus;        // those that its ranks compute on
  friend bool operator==(const NodePlan&, const NodePlan&) = default;
};

/// How one parameter group is trained and exchanged. Stripes and buckets count the group's own elements.
struct GroupPlan {
  GroupId id;  // its index in Plan::groups
  std::string name = "default";
  std::vector<std::string> parameters;  // their names
  RuleKind kind = RuleKind::sgd;
  bool average = false;               // a moving average of the parameters is kept
  std::string rule;                   // to_string(Rule), and what changes it
  std::vector<PolicyPhase> policies;  // one after the other
  CompressionSettings compression;    // for data that is sent; nothing is sent within an arena
  bool running = false;               // running statistics of layers: no rate schedule, no exceptions from weight decay
  std::uint64_t first = 0;            // the layout's element that is the group's element 0
  std::uint64_t count = 0;            // elements
  std::vector<Stripe> stripes;        // one for each rank, in rank order; over a transport one for each rank and bucket
  std::vector<Bucket> buckets;        // by index
  friend bool operator==(const GroupPlan&, const GroupPlan&) = default;
};

/// How many f32 per parameter are kept beside it; the average is the last.
inline std::size_t state_slots(const GroupPlan& group) noexcept {
  return state_slots(group.kind) + (group.average ? 1 : 0);
}

/// Who runs where and what travels how: pure data, the same in every process of a job, compared by hash when they meet.
struct Plan {
  std::string model;  // Graph::to_string()
  DType dtype = DType::f32;
  std::uint64_t parameters = 0;      // Graph::count_parameters()
  std::uint64_t training_flops = 0;  // of one sample, forward and backward
  std::uint32_t batch = 0;           // mean rows per rank and step, at first
  std::vector<BatchChange> batches;  // changes of that, by samples
  std::uint32_t max_rows = 0;        // largest number of rows in a batch
  bool measured = false;             // ranks take samples in proportion to their measured speed; otherwise equal parts
  SplitRange range;                  // limits of a rank's share, if measured
  std::uint32_t prefetch = 0;
  Scatter scatter = Scatter::endless;
  bool node_loader = false;  // each node's leader makes the batches of all its ranks; otherwise each rank its own
  std::uint32_t decoding_threads = 0;  // of each loader, on its rank's cpus; 0: the loader decodes itself
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t data_bytes = 0;  // both sets, in each process that reads them
  std::uint64_t steps = 0;       // in all
  std::uint64_t seed = 0;
  bool deterministic = false;
  bool saves = false;  // writes checkpoints
  /// All ranks have their weights, gradients and states in the memory of GPUs; otherwise in the hosts' memory. Without
  /// NCCL the GPUs of a node reach each other's.
  bool in_gpu_memory = false;
  /// With NCCL: it adds up, in an order of its own; otherwise each owner of a stripe does, in rank order.
  bool nccl_adds = false;
  std::vector<NodePlan> nodes;
  std::vector<RankPlan> ranks;            // by rank
  std::vector<ExchangeLevel> levels{{}};  // at least one: of every group's exchange, from within nodes to between them
  std::vector<GroupPlan> groups;          // at least one
  std::vector<std::string> reasons;       // why the plan is like this, in sentences
  std::uint64_t gathered_bytes = 0;       // bytes of a rank's part of the numbers that layers gather in a step; 0: none
  std::uint64_t digest_steps = 0;         // steps from one comparison of all ranks' weights to the next; 0: none

  std::uint32_t world_size() const noexcept { return static_cast<std::uint32_t>(ranks.size()); }
  /// Whether the ranks of a node share one copy of the parameters, in its leader's arena; otherwise each has its own.
  bool shares_memory() const noexcept { return levels.front().means == LevelMeans::arena; }
  /// Whether gradients are sent over the transport: to other nodes, or to ranks that are treated like other nodes.
  bool uses_transport() const noexcept { return levels.back().means == LevelMeans::transport; }
  /// Whether NCCL exchanges between all ranks or, if there are two levels, between those of each node.
  bool uses_nccl() const noexcept { return levels.front().means == LevelMeans::nccl; }
  /// Whether the ranks of a node add up their gradients before they exchange with counterparts on other nodes.
  bool has_two_levels() const noexcept { return levels.size() > 1; }
  /// Whether all ranks exchange in the shared memory of their node.
  bool is_in_one_arena() const noexcept { return shares_memory() && !uses_transport(); }
  /// The ranks on the node of `rank`, by local rank.
  std::vector<Rank> node_members(Rank rank) const;
  /// Whether `rank` leads its node.
  bool leads_node(Rank rank) const { return nodes.at(ranks.at(rank.value).node).leader == rank.value; }
  /// Whether `rank` reads the data set.
  bool reads_data(Rank rank) const { return !node_loader || leads_node(rank); }
  /// xxh3 of to_string().
  std::uint64_t hash() const;
  /// Canonical text: two texts are equal exactly if the plans are.
  std::string to_string() const;
};

}  // namespace troupe
