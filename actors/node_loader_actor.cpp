#include "actors/node_loader_actor.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "runtime/data/batch_cursor.hpp"

namespace troupe {
namespace {

using FilledReceiver = ActorOf<Takes<SlotFilled>>;

/// A rank that batches are made for.
struct Target {
  BatchCursor cursor;
  FilledReceiver lender;     // once it has lent
  std::deque<Memory> slots;  // lent and not filled
};

struct NodeLoaderState {
  static constexpr const char* name = "node_loader";
  std::unique_ptr<SampleOrder> order;
  std::optional<Ledger> ledger;
  std::map<std::uint32_t, Target> targets;  // by rank
  std::vector<std::uint64_t> indices;
};
using Self = NodeLoaderActor::stateful_pointer<NodeLoaderState>;

/// Fills one slot of `target`: as many messages come as slots, so an exit message never waits for more than one.
bool fill_slot(Self self, const NodeLoaderParts& parts, Target& target) {
  NodeLoaderState& s = self->state;
  if (target.slots.empty() || !target.cursor.has_next(*s.ledger)) return false;
  const Memory slot = target.slots.front();
  target.slots.pop_front();
  const BatchHead head = target.cursor.next(*s.ledger, *s.order, s.indices);
  const Source& source = head.evaluation ? parts.test : parts.train;
  const TraceSpan span(parts.trace, "fill batch", {.step = head.step.value});
  source.fill(s.indices, parts.batch, parts.space.address(slot));
  SlotFilled filled{slot.offset, head.step.value, head.evaluation, head.last, head.rows};
  for (const Rank rank : head.relieved) filled.relieved.push_back(rank.value);
  self->send(target.lender, std::move(filled));
  return true;
}

void take_slot(Self self, const NodeLoaderParts& parts, const SlotLent& lent) {
  const auto found = self->state.targets.find(lent.rank);
  TROUPE_CHECK(found != self->state.targets.end() && lent.size_bytes >= parts.batch.size_bytes(), Code::corrupt,
               "rank ", lent.rank, " lends a slot of ", lent.size_bytes, " bytes; batches of ",
               parts.batch.size_bytes(), " are made for this node's ranks");
  Target& target = found->second;
  target.lender = caf::actor_cast<FilledReceiver>(self->current_sender());
  target.slots.push_back({ArenaId{lent.arena}, lent.offset, lent.size_bytes});
  fill_slot(self, parts, target);
}

NodeLoaderActor::behavior_type node_loader(Self self, NodeLoaderParts parts) {
  end_with_own_errors(self);
  NodeLoaderState& state = self->state;
  state.ledger = parts.ledger;
  state.order = std::make_unique<SampleOrder>(parts.train.count_samples(), parts.seed);
  for (const Rank rank : parts.ranks)
    state.targets.emplace(rank.value, Target{{parts.schedule, rank, parts.batch.rows}, {}, {}});
  return {[=](const SlotLent& lent) { take_slot(self, parts, lent); },
          [=](SlotFree) {
            for (auto& [rank, target] : self->state.targets)
              if (fill_slot(self, parts, target)) return;
          },
          [=](const LedgerNews& news) {
            NodeLoaderState& s = self->state;
            s.ledger->append({{news.first}, news.rows}, {news.until});
            // Slots that were lent while nothing was known of the next step.
            for (const auto& [rank, target] : s.targets)
              for (std::size_t slot = 0; slot < target.slots.size(); ++slot) self->send(self, SlotFree{});
          }};
}

}  // namespace

NodeLoaderActor spawn_node_loader(caf::actor_system& system, const NodeLoaderParts& parts) {
  return system.spawn(node_loader, parts);
}

}  // namespace troupe
