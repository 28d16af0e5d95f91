#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "apps/session/rank_memory.hpp"
#include "runtime/exchange/compression/compressor.hpp"
#include "runtime/lanes/lane_loop.hpp"

namespace troupe {

/// The parts that a rank's communicators use. They outlive the communicators; for lanes see DirectCommunicator.
struct CommunicatorParts {
  AddressSpace& space;
  const Plan& plan;
  Rank self;
  ViewId view;
  std::span<const ArenaId> node_arenas;  // of the node's ranks, by local rank; mapped if the plan shares memory
  // Not null if the plan crosses nodes.
  LaneLoop* bulk = nullptr;
  DirectChannel* channel = nullptr;
  Stream* exchange = nullptr;              // of the device; the bulk lane enqueues on it
  const Compressor* compressor = nullptr;  // the group's; null: none
  Stream* node = nullptr;  // of the device, if the plan has two levels: with NCCL of all groups, otherwise of this
  Trace* trace = nullptr;  // null: nothing is traced
};

/// The same for NCCL.
struct NcclParts {
  AddressSpace& space;
  const Plan& plan;
  Rank self;
  std::span<const ArenaId> node_arenas;  // of the node's ranks, by local rank; mapped
  const NcclId& id;                      // the group's, for this view alone
  Stream& stream;                        // any of the device
  std::chrono::milliseconds call_deadline;
};

/// The communicator of one group, with the levels of the plan. `memory` is this rank's. `nccl`: what
/// make_nccl_communicator made, if NCCL is the level within nodes.
std::unique_ptr<Communicator> make_communicator(const CommunicatorParts& parts, const GroupPlan& group,
                                                const GroupMemory& memory,
                                                std::unique_ptr<NcclCommunicator> nccl = nullptr);
/// The communicator of one group over NCCL, with all ranks or those of the node, as the plan says, which has begun to
/// connect. Throws Error as NcclCommunicator does.
std::unique_ptr<NcclCommunicator> make_nccl_communicator(const NcclParts& parts, const GroupPlan& group,
                                                         const GroupMemory& memory);

}  // namespace troupe
