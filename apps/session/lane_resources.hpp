#pragma once

#include <memory>
#include <vector>

#include "actors/group/group.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/compression/compressor.hpp"
#include "runtime/lanes/lane_wait.hpp"
#include "runtime/model/layout.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {

/// The part of a view that lanes may call or work on. It must outlive their last use of it. A retired view gives it
/// back (give_back below); if a view ends in another way, the job's group keeps it until the group ends.
struct LaneResources {
  std::unique_ptr<LaneWait> waits;                             // null: the stream's waits do not involve lanes
  std::unique_ptr<Device> device;                              // ends after the communicators: NCCL's end needs it
  std::unique_ptr<DirectChannel> channel;                      // null: nothing is exchanged over a transport
  std::vector<std::unique_ptr<const Compressor>> compressors;  // by group, for what is sent; null: none
  std::vector<std::unique_ptr<Communicator>> communicators;    // by group
  std::unique_ptr<Communicator> gather_communicator;           // null: layers gather nothing from other ranks
  std::unique_ptr<RankGather> gather;                          // likewise
  std::vector<std::vector<Layout::Entry>> no_decay;            // by group; used by the streams' work
  std::vector<std::vector<Layout::Entry>> scaled;              // likewise: tensors whose learning rate depends on norms
  std::unique_ptr<Stream> exchange_stream;            // over a transport: the bulk lane's thread enqueues on it
  Programs node_programs;                             // of NCCL's node stream; end before its communicators
  std::vector<std::unique_ptr<Stream>> node_streams;  // by group, then gathering's; of NCCL one; null: one level
};

/// Waits until all rounds of this rank have ended and all their messages have been sent, so that no lane uses
/// `lane_resources`. No step may be in progress. Throws Error{timeout}.
void drain(Blocking& blocking, Group& group, const LaneResources& lane_resources, Deadline deadline);

/// What remains of a retired view when the view object is destroyed.
struct ViewRemains {
  ViewId view;
  std::shared_ptr<LaneResources> lane_resources;  // drained
  std::vector<ArenaId> arenas;                    // that it mapped or bound: its own, and other ranks'
};

/// Collective: waits until every rank has called it after destroying its view, so that no rank sends to the old view
/// any more. Then takes the channel from the transport, destroys the resources when the lanes have left them, and
/// unmaps the arenas. If it throws (as Group::all_gather), the group keeps the resources.
void give_back(Blocking& blocking, Group& group, ViewRemains remains, Deadline deadline);

}  // namespace troupe
