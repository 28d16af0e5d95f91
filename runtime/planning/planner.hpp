#pragma once

// The room planning: makes a plan from settings and the topologies of all nodes: which rank runs where, with which
// memory, in which groups and levels (planner.hpp makes it, plan.hpp defines it). Pure functions over values: every
// rank makes the same plan. It opens no device and no connection.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// One rank, as the bootstrap reports it.
struct RankFacts {
  NodeIdentity node;
  std::string host;
  /// The GPUs that the rank's process may use, as it tells; nothing: all of its node, which reach each other's memory.
  std::optional<std::vector<Accelerator>> gpus{};
  /// NCCL's number of the version that the process can use (22105: 2.21.5); 0: none. Not read without `gpus`: a file
  /// does not tell, and then every rank is taken to have it.
  std::uint32_t nccl = 0;
};

/// The inputs of a plan, besides the settings.
struct PlanInputs {
  std::vector<RankFacts> ranks;      // by rank
  std::vector<Topology> topologies;  // one for each node of `ranks`, in any order
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t data_bytes = 0;  // both sets, in each process that reads them
  /// Why the CUDA device cannot compute the graph, which names the layer; empty: it can.
  std::string cuda_refusal{};
  bool brings_devices = false;  // the app makes the ranks' devices
};

/// All groups by number: those of the settings, then one for each different momentum of running statistics in the
/// graph's layers.
std::vector<Settings::Group> all_groups(const Settings& settings, const Graph& graph);

/// The group of each parameter: running statistics have groups of their own, other parameters follow the patterns of
/// update.group. Throws Error{invalid} for a pattern that matches nothing, a parameter that two groups match, and a
/// group without parameters; the text names it.
Layout layout_of(const Settings& settings, const Graph& graph);

/// Places the ranks and chooses routes. Deterministic: the same inputs give the same plan in every process. Throws
/// Error{invalid}, which names key and node, if the settings require something that the machines do not have.
Plan make_plan(const Settings& settings, const Graph& graph, const PlanInputs& inputs);

/// Throws Error{invalid} if, in a run from the beginning, an entry of update.switch would not begin later than the
/// entry in front of it, or than the group's first policy after its synchronous start: one of the two would never be
/// used.
void check_order_of_switches(const Settings& settings, const PlanInputs& inputs);

/// The memory that one rank will use according to the plan, in bytes. Sizes are computed only here: plans show them,
/// and arenas are made from them. The libraries' own memory is not included.
struct MemoryNeeds {
  std::uint64_t parameters = 0;      // f32; if a node shares memory, counted for its leader
  std::uint64_t half = 0;            // their copy in half precision, likewise
  std::uint64_t weights = 0;         // the ranks' own weights under policies that need them, and weights put aside
  std::uint64_t gradients = 0;       // f32
  std::uint64_t state = 0;           // the optimizer's, for this rank's stripe, and compression's rounding errors
  std::uint64_t journal = 0;         // of restartable updates: one per bucket if all ranks, two or more, share memory
  std::uint64_t snapshot = 0;        // of jobs that save: a copy of this rank's stripe and its state
  std::uint64_t pool = 0;            // the loader's slots; training and evaluation share them
  std::uint64_t staging = 0;         // data that other ranks send to this one, and data that it packs
  std::uint64_t device_staging = 0;  // likewise with NCCL, in the device's memory
  std::uint64_t words = 0;           // directory page, timelines, sums, digests
  std::uint64_t data = 0;            // the samples as they were read; 0 if another rank of the node reads them
  std::uint64_t activations = 0;     // estimate: the device's outputs of layers and their gradients
  std::uint64_t products = 0;        // on a GPU, estimate: for what libraries compute, and products in parts
  std::uint64_t nccl = 0;            // on a GPU, estimate: NCCL's own buffers, as far as they are documented
  std::uint64_t peers = 0;           // used in the other arenas of its node, allocated by their ranks
  /// Size of the rank's arena, with 64 KiB to spare for alignment and small items.
  std::uint64_t arena_bytes() const noexcept;
  /// The part of the arena in the device's memory, if the device has its own, also with 64 KiB to spare.
  std::uint64_t device_bytes() const noexcept;
  /// Of the host, if the device has no memory of its own.
  std::uint64_t memory_bytes() const noexcept { return arena_bytes() + data + activations + peers; }
  /// Of a GPU, if the rank computes on one; `trains_there`: and has weights, gradients and state in its memory.
  std::uint64_t gpu_bytes(bool trains_there) const noexcept {
    return activations + products + nccl + (trains_there ? device_bytes() : 0);
  }
};

/// For `rank`; reads dtype, batch, prefetch, data, loaders, saves, nodes, ranks' nodes, levels and groups of the plan.
MemoryNeeds memory_needs(const Plan& plan, const Graph& graph, Rank rank);

/// The numbers that layers gather in a step, as a parameter group in which each rank's part is its stripe. For plans
/// with `gathered_bytes`; it is not in Plan::groups, and only all_gather() is called for it.
GroupPlan gathered_group(const Plan& plan);
/// The additional bytes that a rank which shares memory needs to show its part.
std::uint64_t gather_scratch_bytes(const Plan& plan);

/// The needs of all groups together. A rank has weights of its own, and memory for what is put aside, for all groups or
/// for none, because its replica reads one whole buffer.
PolicyNeeds needs_of(const Plan& plan);
/// Whether parameters that the group's ranks read from hosting shards go to other memory than their replicas read.
bool has_landing(const GroupPlan& group, DType dtype);

/// The bytes at each rank for the norms of a group's tensors, if its rule needs them.
std::uint64_t squares_bytes(const GroupPlan& group) noexcept;
/// The bytes of memory by which ranks that share memory add up norms, and gather states where the group's own
/// (GroupMemory::scratch) is too small for as many ranks; 0: not needed.
std::uint64_t own_scratch_bytes(const Plan& plan, const GroupPlan& group) noexcept;

/// How much of each rank NCCL's plain operations move at once: a multiple of 64, at most 8 MiB for all ranks.
std::uint64_t nccl_room_bytes(const Plan& plan) noexcept;

/// For people: that a step takes more samples than the training set has, so that some are in it several times, and what
/// to set instead; empty: it does not. Reads batch, batches, scatter, train_samples and the number of ranks.
std::string repeated_samples(const Plan& plan);

/// Whether the group's ranks keep the rounding errors of compression.
bool keeps_residual(const Plan& plan, const GroupPlan& group);

/// The parts of a rank's GPU memory, largest first, with their names; parts of 0 bytes are left out. `needs` are the
/// rank's, which computes on a GPU.
std::vector<std::pair<std::string, std::uint64_t>> gpu_memory_parts(const Plan& plan, const MemoryNeeds& needs);

/// The plan for people: which rank runs where, memory per rank, route, stripes, and the reasons.
std::string describe(const Plan& plan);

}  // namespace troupe
