#include "apps/session/communicators.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/session/exchange_groups.hpp"

namespace troupe {
namespace {

/// Communicators over the transport, one for each set of ranks with which this one exchanges.
std::vector<std::unique_ptr<Communicator>> make_direct(const CommunicatorParts& parts, const GroupPlan& group,
                                                       const GroupMemory& memory) {
  std::vector<std::unique_ptr<Communicator>> made;
  for (DirectGroup& ranks : direct_groups(parts.plan, group, parts.self)) {
    ranks.view = parts.view;
    ranks.parameters = memory.parameters;
    ranks.half = memory.half;
    ranks.staging = memory.staging[made.size()];
    ranks.compressor = parts.compressor;
    ranks.residual = memory.own.residual;
    ranks.device_memory = parts.space.kind(memory.parameters.arena) == MemoryKind::device;
    ranks.sends_device_memory = parts.bulk->transport().sends_from(MemoryKind::device);
    ranks.trace = parts.trace;
    made.push_back(std::make_unique<DirectCommunicator>(parts.space, *parts.bulk, *parts.exchange, std::move(ranks),
                                                        parts.channel));
  }
  return made;
}

std::vector<Counterparts> make_sets(const CommunicatorParts& parts, const GroupPlan& group, const GroupMemory& memory) {
  const ExchangeLevel& between = parts.plan.levels.back();
  std::vector<std::unique_ptr<Communicator>> direct = make_direct(parts, group, memory);
  std::vector<Counterparts> sets;
  for (std::size_t s = 0; s < between.sets.size(); ++s) {
    const std::vector<Rank>& set = between.sets[s];
    if (std::find(set.begin(), set.end(), parts.self) == set.end()) continue;
    sets.push_back({s, counterpart_group(between, s, group.stripes, group.buckets), std::move(direct[sets.size()])});
  }
  return sets;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const CommunicatorParts& parts, const GroupPlan& group,
                                                const GroupMemory& memory, std::unique_ptr<NcclCommunicator> nccl) {
  if (nccl != nullptr)
    return std::make_unique<NestedCommunicator>(parts.space, *parts.node,
                                                nested_group(parts.plan, group, parts.self, memory), std::move(nccl),
                                                make_sets(parts, group, memory));
  if (!parts.plan.shares_memory()) return std::move(make_direct(parts, group, memory).front());
  if (parts.plan.is_in_one_arena())
    return std::make_unique<ArenaCommunicator>(
        parts.space, arena_group(parts.space, parts.plan, group, parts.node_arenas, parts.self));
  return std::make_unique<HierarchicalCommunicator>(
      parts.space, *parts.node, node_group(parts.space, parts.plan, group, parts.node_arenas, parts.self, memory),
      make_sets(parts, group, memory));
}

std::unique_ptr<NcclCommunicator> make_nccl_communicator(const NcclParts& parts, const GroupPlan& group,
                                                         const GroupMemory& memory) {
  NcclGroup all = nccl_group(parts.plan, group, parts.self);
  all.id = parts.id;
  const std::vector<Rank> near = parts.plan.node_members(parts.self);
  for (std::size_t m = 0; m < near.size(); ++m)
    all.members[parts.plan.has_two_levels() ? m : near[m].value] =
        find_nccl_member(parts.space.arena(parts.node_arenas[m]), group);
  all.parameters = memory.parameters;
  all.half = memory.half;
  if (has_16_bits(parts.plan.dtype)) all.copy_type = parts.plan.dtype;
  all.staging = memory.nccl_staging;
  return std::make_unique<NcclCommunicator>(parts.space, parts.stream, std::move(all),
                                            NcclOptions{.call_deadline = parts.call_deadline});
}

}  // namespace troupe
