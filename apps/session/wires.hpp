#pragma once

#include <memory>
#include <vector>

#include "actors/group/group.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/exchange/communicator.hpp"
#include "runtime/exchange/filters/filter.hpp"
#include "runtime/lanes/lane_wait.hpp"
#include "runtime/model/layout.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {

/// What of a view the lanes may be told of, or work on: it ends after them, or once they can no longer reach it. A view
/// that is retired gives it back (give_back below); of one that ends otherwise the job's group keeps it to its own end.
struct Wires {
  std::unique_ptr<DirectChannel> channel;                    // null: nothing is exchanged over a transport
  std::vector<std::unique_ptr<const Filter>> filters;        // by group, of what is sent; null: none
  std::vector<std::unique_ptr<Communicator>> communicators;  // by group
  std::unique_ptr<Communicator> gather_communicator;         // null: layers gather nothing of other ranks
  std::unique_ptr<RankGather> gather;                        // likewise
  std::vector<std::vector<Layout::Entry>> no_decay;          // by group; the streams' work reads them
  std::vector<std::vector<Layout::Entry>> scaled;            // likewise: whose rate follows from norms
  std::unique_ptr<LaneWait> waits;                           // null: the stream's waits have nothing to do with lanes
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> exchange_stream;            // between nodes: the bulk lane's thread enqueues on it
  std::vector<std::unique_ptr<Stream>> node_streams;  // by group, then that of what is gathered; null: nothing is
                                                      // reduced within nodes first
};

/// Waits until all rounds of this rank are over, and what it sent in them has left, so that no lane holds anything of
/// `wires`. No step is under way. Throws Error{timeout}.
void settle(Blocking& blocking, Group& group, const Wires& wires, Deadline deadline);

/// What is left of a view that was retired, when it is gone itself.
struct ViewRemains {
  ViewId view;
  std::shared_ptr<Wires> wires;  // settled
  std::vector<ArenaId> arenas;   // that it mapped, or bound: its own, and the other ranks'
};

/// Collective: waits until every rank has come to here with its view gone, so that nothing is sent to the old one any
/// more; takes the channel from it, ends its wires once the lanes have left them, and unmaps its arenas. When it throws
/// (as Group::all_gather), the group keeps the wires.
void give_back(Blocking& blocking, Group& group, ViewRemains remains, Deadline deadline);

}  // namespace troupe
