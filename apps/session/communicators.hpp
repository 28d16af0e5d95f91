#pragma once

#include <memory>
#include <span>

#include "apps/session/rank_memory.hpp"
#include "runtime/exchange/filters/filter.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {

/// What a rank's communicators are made of; all of it outlives them, but for what DirectCommunicator says of lanes.
struct CommunicatorParts {
  AddressSpace& space;
  const Plan& plan;
  Rank self;
  ViewId view;
  std::span<const ArenaId> node_arenas;  // of the node's ranks, by local rank; mapped where the plan shares memory
  // Of plans that cross nodes; otherwise null.
  LaneLoop* bulk = nullptr;
  DirectChannel* channel = nullptr;
  Stream* exchange = nullptr;      // of the device; the bulk lane enqueues on it
  const Filter* filter = nullptr;  // the group's; null: none
  Stream* node = nullptr;          // of the device and of this group alone, where the plan has two levels
  Trace* trace = nullptr;          // null: nothing is noted
};

/// The communicator of one group, whose rank has `memory`, by the levels of the plan.
std::unique_ptr<Communicator> make_communicator(const CommunicatorParts& parts, const GroupPlan& group,
                                                const GroupMemory& memory);

}  // namespace troupe
