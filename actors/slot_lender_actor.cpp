#include "actors/slot_lender_actor.hpp"

#include <map>
#include <memory>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "actors/detail/slot_messenger.hpp"

namespace troupe {
namespace {

struct SlotLenderState {
  static constexpr const char* name = "slot_lender";
  std::map<std::uint64_t, Slot> lent;  // by offset
  std::unique_ptr<detail::SlotMessenger<SlotLenderActor>> messenger;
};
using SlotLenderSelf = SlotLenderActor::stateful_pointer<SlotLenderState>;

void lend(SlotLenderSelf self, LeasePool& pool, Rank rank, const SlotBorrower& borrower) {
  auto slot = pool.try_take();
  if (!slot) return;
  const Memory memory = slot->memory();
  self->state.lent.emplace(memory.offset, std::move(*slot));
  self->send(borrower, SlotLent{rank.value, memory.arena.value, memory.offset, memory.size_bytes});
}

BatchLease lease_of(SlotLenderState& s, const SlotFilled& filled) {
  auto slot = s.lent.extract(filled.offset);
  TROUPE_CHECK(!slot.empty(), Code::corrupt, "the node's loader has filled the slot at offset ", filled.offset,
               ", which it was not lent");
  BatchLease lease{std::move(slot.mapped()).publish(), {filled.step}, filled.evaluation, filled.last, filled.rows};
  for (const std::uint32_t rank : filled.relieved) lease.relieved.push_back({rank});
  return lease;
}

SlotLenderActor::behavior_type slot_lender(SlotLenderSelf self, LeasePool* pool, Rank rank, SlotBorrower borrower,
                                           BatchReceiver device) {
  end_with_own_errors(self);
  self->state.messenger = std::make_unique<detail::SlotMessenger<SlotLenderActor>>(*pool, SlotLenderActor{self});
  self->set_down_handler([=](caf::down_msg&) { self->quit(); });  // nothing receives batches any more
  self->monitor(device);
  for (std::size_t slot = 0; slot < pool->count_slots(); ++slot) lend(self, *pool, rank, borrower);
  return {[=](SlotFree) { lend(self, *pool, rank, borrower); },
          [=](const SlotFilled& filled) { self->send(device, lease_of(self->state, filled)); }};
}

}  // namespace

SlotLenderActor spawn_slot_lender(caf::actor_system& system, LeasePool& pool, Rank rank, SlotBorrower borrower,
                                  BatchReceiver device) {
  return system.spawn(slot_lender, &pool, rank, std::move(borrower), std::move(device));
}

}  // namespace troupe
