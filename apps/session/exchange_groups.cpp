#include "apps/session/exchange_groups.hpp"

#include <algorithm>

#include "runtime/exchange/chunks.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe {
namespace {

DirectGroup all_ranks(const Plan& plan, const GroupPlan& group, Rank self) {
  DirectGroup made;
  made.rank = self;
  for (std::uint32_t rank = 0; rank < plan.world_size(); ++rank) made.peers.push_back({rank});
  made.stripes = group.stripes;
  made.buckets = group.buckets;
  return made;
}

/// Ranks by node and by local rank.
const std::vector<std::vector<Rank>>& nodes_of(const Plan& plan) { return plan.levels.front().sets; }

}  // namespace

std::vector<DirectGroup> direct_groups(const Plan& plan, const GroupPlan& group, Rank self) {
  const ExchangeLevel& level = plan.levels.back();
  std::vector<DirectGroup> all;
  for (std::uint32_t s = 0; s < level.sets.size(); ++s) {
    const std::vector<Rank>& set = level.sets[s];
    const auto place = std::find(set.begin(), set.end(), self);
    if (place == set.end()) continue;
    const Rank own{static_cast<std::uint32_t>(place - set.begin())};
    DirectGroup& made = all.emplace_back(
        !plan.has_two_levels()
            ? all_ranks(plan, group, own)
            : between_nodes(counterpart_group(level, s, group.stripes, group.buckets), own, nodes_of(plan)));
    made.id = {static_cast<std::uint32_t>(group.id.value * level.sets.size() + s)};
    made.chunk = chunk_elements(group.count);
  }
  return all;
}

NcclGroup nccl_group(const Plan& plan, const GroupPlan& group, Rank self) {
  NcclGroup made;
  made.rank_ordered = !plan.nccl_adds;
  made.room = nccl_room_bytes(plan);
  if (plan.has_two_levels()) {
    made.rank = Rank{plan.ranks.at(self.value).local_rank};
    made.names = plan.node_members(self);
    made.members.resize(made.names.size());
    return made;
  }
  made.rank = self;
  made.members.resize(plan.world_size());
  made.stripes = group.stripes;
  made.buckets = group.buckets;
  return made;
}

namespace {

bool is_gathered(const GroupPlan& group, const RankMemory& rank) { return group.id.value == rank.groups.size(); }

const GroupMemory& memory_of(const GroupPlan& group, const RankMemory& rank) {
  return is_gathered(group, rank) ? rank.gathered : rank.groups[group.id.value];
}

ArenaMember arena_member(const GroupPlan& group, const RankMemory& rank) {
  const GroupMemory& its = memory_of(group, rank);
  ArenaMember member{its.contributions, rank.sums, its.ready, its.published, {}};
  // With tensor norms, the group's scratch memory is in use while the norms are added up.
  if (its.own_scratch.size_bytes != 0)
    member.scratch = its.own_scratch;
  else if (is_gathered(group, rank) || needs_of(group.policies).whole_state)
    member.scratch = its.scratch;
  return member;
}

}  // namespace

ArenaGroup arena_group(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                       std::span<const ArenaId> arenas, Rank self) {
  ArenaGroup all{.rank = Rank{plan.ranks.at(self.value).local_rank}, .members = {}};
  const std::vector<Rank> members = plan.node_members(self);
  for (std::size_t m = 0; m < members.size(); ++m)
    all.members.push_back(arena_member(group, find_rank_memory(space.arena(arenas[m]), plan, members[m])));
  return all;
}

NodeGroup node_group(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                     std::span<const ArenaId> arenas, Rank self, const GroupMemory& own) {
  NodeGroup all;
  all.rank = Rank{plan.ranks.at(self.value).local_rank};
  all.names = plan.node_members(self);
  all.buckets = group.buckets;
  all.between = plan.levels.back();
  all.node_sums = own.node_sums;
  all.found = own.found;
  for (std::size_t m = 0; m < all.names.size(); ++m) {
    const RankMemory rank = find_rank_memory(space.arena(arenas[m]), plan, all.names[m]);
    const GroupMemory& its = memory_of(group, rank);
    all.members.push_back({arena_member(group, rank), its.handed, its.measured, its.verdict});
    if (plan.leads_node(all.names[m])) all.updated = its.updated;
  }
  return all;
}

NestedGroup nested_group(const Plan& plan, const GroupPlan& group, Rank self, const GroupMemory& own) {
  NestedGroup all{.rank = self,
                  .members = plan.node_members(self),
                  .stripes = group.stripes,
                  .buckets = group.buckets,
                  .between = plan.levels.back(),
                  .parameters = own.parameters,
                  .half = own.half,
                  .updated = own.updated,
                  .node_sums = own.node_sums,
                  .found = own.found,
                  .verdict = own.verdict};
  if (has_16_bits(plan.dtype)) all.copy_type = plan.dtype;
  return all;
}

std::vector<StripeMemory> stripes_in_reach(const AddressSpace& space, const Plan& plan, const GroupPlan& group,
                                           std::span<const ArenaId> arenas, const GroupMemory& own) {
  std::vector<StripeMemory> all;
  for (std::uint32_t r = 0; r < arenas.size(); ++r) {
    const RankMemory rank = find_rank_memory(space.arena(arenas[r]), plan, {r});
    StripeMemory& theirs = all.emplace_back(rank.groups[group.id.value].stripes.at(0));
    const Stripe& stripe = theirs.stripe;
    theirs.copy_type = own.stripes.front().copy_type;
    theirs.parameters = elements(own.parameters, stripe.first, stripe.count, sizeof(float));
    theirs.half = elements(own.half, stripe.first, stripe.count, size_bytes(DType::bf16));
  }
  return all;
}

}  // namespace troupe
