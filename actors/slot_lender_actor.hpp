#pragma once

#include "actors/loader_actor.hpp"
#include "actors/messages.hpp"
#include "runtime/memory/lease.hpp"

namespace troupe {

/// What stands in a rank's process for the loader of its node: lends it every free slot of the rank's pool, and hands
/// what comes back filled to the device, in the order in which it comes. A slot is the lender's until it is filled, so
/// a rank is never sent more than it has slots. Ends with the device.
using SlotLenderActor = ActorOf<Takes<SlotFree>, Takes<SlotFilled>>;
/// How lenders see the loader of their node.
using SlotBorrower = ActorOf<Takes<SlotLent>>;

/// `pool` outlives it, and lies in memory that the borrower's process has mapped.
SlotLenderActor spawn_slot_lender(caf::actor_system& system, LeasePool& pool, Rank rank, SlotBorrower borrower,
                                  BatchReceiver device);

}  // namespace troupe
