#pragma once

// The room planning: from settings and the topologies of all nodes to a plan: which rank works where, with which
// memory, in which groups and levels (planner.hpp makes it, plan.hpp is it). Pure functions over values: every rank
// makes the same plan. It opens no device and no connection.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/settings.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/planning/plan.hpp"
#include "runtime/planning/topology.hpp"

namespace troupe {

/// One rank as the bootstrap found it.
struct RankFacts {
  NodeIdentity node;
  std::string host;
};

/// What a plan is made of, apart from the settings.
struct PlanInputs {
  std::vector<RankFacts> ranks;      // by rank
  std::vector<Topology> topologies;  // one for each different node of `ranks`, any order
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t data_bytes = 0;  // both sets, in each process that reads them
};

/// All groups by their numbers: those of the settings, then one for each momentum that running statistics of the
/// graph's layers have.
std::vector<Settings::Group> all_groups(const Settings& settings, const Graph& graph);

/// Which group each parameter is in: running statistics in those of their own, the rest as the patterns of update.group
/// say. Throws Error{invalid} for a pattern that matches nothing, a parameter that two groups match, and a group
/// without parameters, naming it.
Layout layout_of(const Settings& settings, const Graph& graph);

/// Places the ranks and chooses routes. Deterministic: the same inputs give the same plan in every process. Throws
/// Error{invalid} when the settings ask for what the machines do not have, naming key and node.
Plan make_plan(const Settings& settings, const Graph& graph, const PlanInputs& inputs);

/// What one rank will have in use by the plan, in bytes. The one place where the sizes stand: plans show them, arenas
/// are made by them. The libraries' own memory comes on top.
struct MemoryNeeds {
  std::uint64_t parameters = 0;   // f32; where a node shares memory, its leader's
  std::uint64_t bf16 = 0;         // their bf16 image, likewise
  std::uint64_t weights = 0;      // of policies whose ranks have their own, and what they put aside
  std::uint64_t gradients = 0;    // f32
  std::uint64_t state = 0;        // the optimizer's, of this rank's stripe, and what filters took away
  std::uint64_t journal = 0;      // of restartable updates: where all ranks share memory, one a bucket
  std::uint64_t snapshot = 0;     // of jobs that save: a copy of this rank's stripe and its state
  std::uint64_t pool = 0;         // the loader's slots; training and evaluation share them
  std::uint64_t staging = 0;      // what other ranks send to this one, and what it packs
  std::uint64_t words = 0;        // directory page, timelines, sums, digests
  std::uint64_t data = 0;         // the samples as they were read; 0 where another rank of the node reads them
  std::uint64_t activations = 0;  // the device's own, estimated: what layers put out, and its gradients
  std::uint64_t peers = 0;        // what it works on in its node's other arenas, theirs to allocate
  /// What the rank's arena has to hold, with 64 KiB to spare for alignment and small things.
  std::uint64_t arena_bytes() const noexcept;
  /// Of that, what lies in the device's memory where it has its own, with as much to spare.
  std::uint64_t device_bytes() const noexcept;
  std::uint64_t memory_bytes() const noexcept { return arena_bytes() + data + activations + peers; }
};

/// Of `rank`; reads dtype, batch, prefetch, data, loaders, saves, nodes, ranks' nodes, levels and groups of the plan.
MemoryNeeds memory_needs(const Plan& plan, const Graph& graph, Rank rank);

/// What layers gather of all ranks in a step, as a parameter group whose parameters are the ranks' parts, each its
/// owner's stripe. Of plans with `gathered_bytes`; it is none of Plan::groups, and only all_gather() is called for it.
GroupPlan gathered_group(const Plan& plan);
/// What a rank that shares memory takes beside that to show its part, in bytes.
std::uint64_t gather_scratch_bytes(const Plan& plan);

/// Of any of the groups. Weights of its own, and room for what is put aside, a rank has for all of them or for none,
/// since its replica reads one whole.
PolicyNeeds needs_of(const Plan& plan);
/// Whether what the group's ranks read from hosting shards lands elsewhere than where their replicas read.
bool has_landing(const GroupPlan& group, DType dtype);

/// What the norms of a group's tensors take at each rank, of a rule that needs them; and what ranks that share memory
/// show each other of them.
std::uint64_t squares_bytes(const GroupPlan& group) noexcept;
std::uint64_t norm_scratch_bytes(const Plan& plan, const GroupPlan& group) noexcept;

/// Whether the group's ranks keep what a filter takes away of what they send.
bool keeps_residual(const Plan& plan, const GroupPlan& group);

/// The plan for people: who runs where, memory per rank, route, stripes, and the reasons.
std::string describe(const Plan& plan);

}  // namespace troupe
