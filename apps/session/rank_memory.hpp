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
#include "transports/collectives/nested_communicator.hpp"
#include "transports/nccl/nccl_communicator.hpp"

namespace troupe {

/// The memory of one parameter group. "Whole" means all of the group's elements.
struct GroupMemory {
  Memory parameters;     // whole f32: a part of RankMemory::parameters
  Memory half;           // whole bf16, a part likewise; empty in f32
  Memory gradients;      // whole f32
  Memory contributions;  // what the node's other ranks may read: from the gradients to the end of `scratch`
  Memory scratch;        // whole f32: for values set aside, and for gathering states; empty: not needed
  ExchangeMemory own;    // what else the policy needs; see ExchangeMemory
  Memory landing;        // whole f32: what is read from hosting shards, if the replica reads from elsewhere
  Memory one;            // a StepSums, for the same purpose
  Memory squares;        // TensorSquares, at most one for each parameter; empty: the rule needs no tensor norms
  Memory own_scratch;    // in which the ranks of a node add them up, and gather states where `scratch` is too small
  std::vector<StripeMemory> stripes;  // this rank's, at least one: parts of parameters and bf16, state and journals
  std::vector<Stripe> sent;           // the ranges whose residual `own` keeps; the owner is the sender's index
  std::vector<Memory> staging;        // one for each set of ranks with which it exchanges over a transport
  Memory nccl_staging;                // of the device's; empty: the plan does not use NCCL
  NcclMember calls;                   // of NCCL; shown to the node's other ranks
  TimelineId ready;                   // gradients written
  TimelineId published;               // stripe updated
  // If the exchange has a level within nodes and one between nodes; see NodeGroup.
  TimelineId handed, measured;
  Memory verdict, node_sums, found;  // each is one StepSums
  TimelineId updated;  // of the leader: the first of its buckets' lines; with NCCL each rank's own, of all buckets
};

/// The memory of one rank: totals, evaluations, digests, snapshot, staging and lines are in its arena, the rest where
/// its device works on it. Peers on the node find the parts by the names under which they are published.
struct RankMemory {
  Memory parameters;                // [layout] f32; the leader's, if ranks share memory
  Memory half;                      // [layout] bf16 likewise; empty in f32
  ReplicaMemory replica;            // [layout]; its weights are those above, or the rank's own
  Memory sums;                      // StepExchange::ring_bytes()
  Memory totals;                    // StepExchange::total_bytes()
  Memory evaluations;               // kEvaluationsKept StepSums
  Memory digests;                   // digest_bytes(), in jobs that compare weights
  Memory snapshot;                  // in jobs that save checkpoints: a copy of stripes and states, aligned to a page
  std::vector<GroupMemory> groups;  // as Plan::groups
  GroupMemory gathered;             // for gathered_group(): its parameters are the ranks' parts
};

/// Allocates a rank's memory: from its arena, whose directory and lines the node's processes read, and from the memory
/// on which its device works. That is also the arena if the device works in host memory.
class RankStore {
 public:
  explicit RankStore(Arena& own) : arena_(&own) {}
  /// Allocates from `device`, the device's own memory; peers find its ticket in the arena.
  RankStore(Arena& own, const Memory& device, const RegionTicket& ticket);
  /// Memory for the device's work. Throws Error{out_of_memory} if there is not enough.
  Memory take(std::uint64_t size_bytes);
  bool has_device_memory() const noexcept { return device_.size_bytes != 0; }

  Arena& arena() const noexcept { return *arena_; }

 private:
  Arena* arena_;
  Memory device_;
  std::uint64_t used_bytes_ = 0;
};

/// The ticket of the device memory that a peer's arena names; nothing: it has none.
std::optional<RegionTicket> find_device_ticket(const AddressSpace& space, const Arena& arena);

/// Allocates rank `self`'s memory and publishes what peers need. join_node_memory fills in the stripes' parameters.
RankMemory allocate_rank_memory(RankStore& own, const Plan& plan, Rank self);

/// The bytes, in addition to MemoryNeeds::arena_bytes(), that a rank's direct communicators need in its arena if its
/// device has its own memory.
std::uint64_t device_staging_bytes(const Plan& plan, Rank self);

/// Completes `memory` with the parameters that the node shares: the leader's, found in `leader`, which may be this
/// rank's arena.
void join_node_memory(RankMemory& memory, const Plan& plan, const Arena& leader);

/// A peer's memory, found by name in its opened arena; parts that it does not share are empty. Throws Error{corrupt} if
/// a name is missing that must be there according to the plan.
RankMemory find_rank_memory(const Arena& arena, const Plan& plan, Rank rank);

/// What a rank of the node, whose opened arena this is, shows of its calls of NCCL.
NcclMember find_nccl_member(const Arena& arena, const GroupPlan& group);

}  // namespace troupe
