#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/compute/device.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/planning/plan.hpp"
#include "transports/collectives/arena_communicator.hpp"
#include "transports/collectives/direct_communicator.hpp"
#include "transports/collectives/hierarchical_communicator.hpp"

namespace troupe {

/// Where everything of one parameter group lies; "whole" is of the group's elements.
struct GroupMemory {
  Memory parameters;     // whole f32: a part of RankMemory::parameters
  Memory bf16;           // whole bf16 likewise; empty in f32
  Memory gradients;      // whole f32
  Memory contributions;  // what the node's other ranks may read: from the gradients to the end of `scratch`
  Memory scratch;        // whole f32: what is put aside, and free when states are gathered; empty: nothing is
  ExchangeMemory own;    // what the policy needs beyond that; see ExchangeMemory
  Memory landing;        // whole f32: what is read from hosting shards, where that is not what the replica reads
  Memory one;            // a StepSums, likewise
  Memory squares;        // TensorSquares, at most one for each parameter; empty: the rule needs no norms of tensors
  Memory norm_scratch;   // through which the ranks of a node add them up, likewise
  std::vector<StripeMemory> stripes;  // this rank's, at least one: parts of parameters and bf16, state and journals
  std::vector<Stripe> sent;           // this rank's ranges whose residual `own` keeps; the tenant is the sender's place
  std::vector<Memory> staging;        // of each set of ranks with which it exchanges over a transport
  TimelineId ready;                   // gradients written
  TimelineId published;               // stripe updated
  // Where the exchange has a level within nodes and one between them; see NodeGroup.
  TimelineId handed, measured;
  Memory verdict, node_sums, found;  // a StepSums each
  TimelineId updated;                // at the leader: the first of its buckets' lines
};

/// Where everything of one rank lies: totals, evaluations, digests, snapshot, staging and lines in its arena, the rest
/// where its device works on it. Peers of the node find the parts by the names under which they are published.
struct RankMemory {
  Memory parameters;                // [layout] f32; of ranks that share memory, their leader's
  Memory bf16;                      // [layout] bf16 likewise; empty in f32
  ReplicaMemory replica;            // [layout]: the weights that it reads are those, or of the rank's own
  Memory sums;                      // StepExchange::ring_bytes()
  Memory totals;                    // StepExchange::total_bytes()
  Memory evaluations;               // kEvaluationsKept StepSums
  Memory digests;                   // digest_bytes(), of jobs that compare weights
  Memory snapshot;                  // of jobs that save: a copy of the stripes and their states, from a page on
  std::vector<GroupMemory> groups;  // as Plan::groups
  GroupMemory gathered;             // of gathered_group(): its parameters are the ranks' parts
};

/// Where a rank's memory comes from: its arena, whose directory and lines the node's processes read, and the memory on
/// which its device works. That is the arena's, too, where the device works in the host's memory.
class RankStore {
 public:
  explicit RankStore(Arena& own) : arena_(&own) {}
  /// Takes from `device`, memory of the device's own; peers find its ticket in the arena.
  RankStore(Arena& own, const Memory& device, const RegionTicket& ticket);
  /// For the device's work. Throws Error{out_of_memory} when there is not as much.
  Memory take(std::uint64_t size_bytes);
  bool has_device_memory() const noexcept { return device_.size_bytes != 0; }

  Arena& arena() const noexcept { return *arena_; }

 private:
  Arena* arena_;
  Memory device_;
  std::uint64_t used_bytes_ = 0;
};

/// The ticket of the device memory that a peer's arena tells of; nothing: it has none.
std::optional<RegionTicket> find_device_ticket(const AddressSpace& space, const Arena& arena);

/// Takes rank `self`'s memory and publishes what peers need. The stripes' parameters are filled in by
/// join_node_memory.
RankMemory allocate_rank_memory(RankStore& own, const Plan& plan, Rank self);

/// What direct communicators of a rank take from its arena beside MemoryNeeds::arena_bytes() where its device has
/// memory of its own.
std::uint64_t device_staging_bytes(const Plan& plan, Rank self);

/// Completes `memory` with the node's shared parameters (the leader's, found in `leader`, which may be its own).
void join_node_memory(RankMemory& memory, const Plan& plan, const Arena& leader);

/// A peer's memory, found by name in its opened arena; what it does not share stays empty. Throws Error{corrupt} when a
/// name that the plan promises is missing.
RankMemory find_rank_memory(const Arena& arena, const Plan& plan, Rank rank);

/// What a rank exchanges of a group over the transport, with each set of ranks: of one level with all, else with its
/// counterparts. All but memory, view and `filter`.
std::vector<DirectGroup> direct_groups(const Plan& plan, const GroupPlan& group, Rank self);

/// What the ranks of a node, all of whose `arenas` (by local rank) are mapped, show each other of a group, one of which
/// is `self`.
ArenaGroup arena_group(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                       std::span<const ArenaId> arenas, Rank self);

/// Likewise of nodes that exchange with others; the rank itself has `own`.
NodeGroup node_group(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                     std::span<const ArenaId> arenas, Rank self, const GroupMemory& own);

/// ExchangeMemory::stripes of ranks that are all on one node, one of which has `own`.
std::vector<StripeMemory> stripes_in_reach(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                                           std::span<const ArenaId> arenas, const GroupMemory& own);

}  // namespace troupe
