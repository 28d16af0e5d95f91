#pragma once

#include "actors/loader_actor.hpp"
#include "actors/messages.hpp"
#include "runtime/memory/lease.hpp"

namespace troupe {

/// Represents a rank at the loader of its node: lends it every free slot of the rank's pool, and passes filled slots to
/// the device, in the order in which they come back. The loader has only the slots that are lent, so a rank never gets
/// more batches than it has slots. Ends with the device.
using SlotLenderActor = ActorOf<Takes<SlotFree>, Takes<SlotFilled>>;
/// The loader of a node, for lenders.
using SlotBorrower = ActorOf<Takes<SlotLent>>;

/// `pool` outlives it, and is in memory that the borrower's process has mapped.
SlotLenderActor spawn_slot_lender(caf::actor_system& system, LeasePool& pool, Rank rank, SlotBorrower borrower,
                                  BatchReceiver device);

}  // namespace troupe
