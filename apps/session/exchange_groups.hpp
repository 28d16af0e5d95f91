#pragma once

#include <span>
#include <vector>

#include "apps/session/rank_memory.hpp"

/// What a rank's communicators are made from, by the plan and by the memory that the ranks of its node show.
namespace troupe {

/// What a rank exchanges of a group over the transport, with each set of ranks: with all if there is one level,
/// otherwise with its counterparts. Without memory, view and `compressor`.
std::vector<DirectGroup> direct_groups(const Plan& plan, const GroupPlan& group, Rank self);

/// What a rank exchanges of a group over NCCL, with all ranks or, if there are two levels, in plain operations with
/// those of its node. Without memory, id and the members' lines.
NcclGroup nccl_group(const Plan& plan, const GroupPlan& group, Rank self);

/// What the ranks of a node show each other of a group. `self` is one of them; all `arenas` (by local rank) are mapped.
ArenaGroup arena_group(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                       std::span<const ArenaId> arenas, Rank self);

/// The same for nodes that exchange with others; `own` is this rank's memory.
NodeGroup node_group(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                     std::span<const ArenaId> arenas, Rank self, const GroupMemory& own);

/// The same for nodes within which NCCL exchanges.
NestedGroup nested_group(const Plan& plan, const GroupPlan& group, Rank self, const GroupMemory& own);

/// ExchangeMemory::stripes for ranks that are all on one node; `own` is this rank's memory.
std::vector<StripeMemory> stripes_in_reach(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                                           std::span<const ArenaId> arenas, const GroupMemory& own);

}  // namespace troupe
