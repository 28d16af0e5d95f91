#include "actors/node_loader_actor.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "actors/detail/filling.hpp"
#include "runtime/data/batch_cursor.hpp"

namespace troupe {
namespace {

using FilledReceiver = ActorOf<Takes<SlotFilled>>;
using NodeFilling = detail::Filling<Memory>;

/// A rank for which batches are made.
struct Target {
  BatchCursor cursor;
  FilledReceiver lender;                               // known after it has lent a slot
  std::deque<Memory> slots;                            // lent and not filled
  std::deque<std::shared_ptr<NodeFilling>> filling{};  // in the order in which they will be sent
};

struct NodeLoaderState {
  static constexpr const char* name = "node_loader";
  std::unique_ptr<SampleOrder> order;
  std::optional<SampleLedger> ledger;
  std::map<std::uint32_t, Target> targets;  // by rank
};
using NodeLoaderSelf = NodeLoaderActor::stateful_pointer<NodeLoaderState>;

/// Sends the filled batches, up to the first one that is not filled yet.
void report_filled(NodeLoaderSelf self, Target& target) {
  for (; !target.filling.empty() && target.filling.front()->done(); target.filling.pop_front()) {
    const NodeFilling& batch = *target.filling.front();
    batch.check();
    SlotFilled filled{batch.place.offset, batch.head.step.value, batch.head.evaluation, batch.head.last,
                      batch.head.rows};
    for (const Rank rank : batch.head.relieved) filled.relieved.push_back(rank.value);
    self->send(target.lender, std::move(filled));
  }
}

/// Asks for a batch for one slot of `target`. There is one message for each slot, so an exit message waits for at most
/// one fill.
bool fill_slot(NodeLoaderSelf self, const NodeLoaderParts& parts, Target& target) {
  NodeLoaderState& s = self->state;
  if (target.slots.empty() || !target.cursor.has_next(*s.ledger)) return false;
  const Memory slot = target.slots.front();
  target.slots.pop_front();
  std::vector<Sample> samples;
  BatchHead head = target.cursor.next(*s.ledger, *s.order, samples);
  const Source& source = head.evaluation ? parts.test : parts.train;
  const TraceSpan span(parts.trace, "fill batch", {.step = head.step.value});
  const auto batch = std::make_shared<NodeFilling>(std::move(head), std::move(samples), slot,
                                                   [to = NodeLoaderActor{self}] { caf::anon_send(to, BatchFilled{}); });
  target.filling.push_back(batch);
  const FillRequest request{batch->samples, parts.seed, &parts.batch, parts.space.address(slot)};
  write_sample_keys(request);
  source.fill(request, parts.threads, batch);
  if (batch->returned()) report_filled(self, target);
  return true;
}

void take_slot(NodeLoaderSelf self, const NodeLoaderParts& parts, const SlotLent& lent) {
  const auto found = self->state.targets.find(lent.rank);
  TROUPE_CHECK(found != self->state.targets.end() && lent.size_bytes >= parts.batch.size_bytes(), Code::corrupt,
               "rank ", lent.rank, " lends a slot of ", lent.size_bytes, " bytes; batches of ",
               parts.batch.size_bytes(), " are made for this node's ranks");
  Target& target = found->second;
  target.lender = caf::actor_cast<FilledReceiver>(self->current_sender());
  target.slots.push_back({ArenaId{lent.arena}, lent.offset, lent.size_bytes});
  fill_slot(self, parts, target);
}

NodeLoaderActor::behavior_type node_loader(NodeLoaderSelf self, NodeLoaderParts parts) {
  end_with_own_errors(self);
  NodeLoaderState& state = self->state;
  state.ledger = parts.ledger;
  state.order = std::make_unique<SampleOrder>(parts.train.count_samples(), parts.seed);
  for (const Rank rank : parts.ranks)
    state.targets.emplace(rank.value, Target{{parts.schedule, rank, parts.batch.rows()}, {}, {}, {}});
  return {[=](const SlotLent& lent) { take_slot(self, parts, lent); },
          [=](BatchFilled) {
            for (auto& [rank, target] : self->state.targets) report_filled(self, target);
          },
          [=](SlotFree) {
            for (auto& [rank, target] : self->state.targets)
              if (fill_slot(self, parts, target)) return;
          },
          [=](const LedgerUpdate& ledger_update) {
            NodeLoaderState& s = self->state;
            s.ledger->append({{ledger_update.first}, ledger_update.rows}, {ledger_update.until});
            // For slots that were lent while the next step was not known yet.
            for (const auto& [rank, target] : s.targets)
              for (std::size_t slot = 0; slot < target.slots.size(); ++slot) self->send(self, SlotFree{});
          }};
}

}  // namespace

NodeLoaderActor spawn_node_loader(caf::actor_system& system, const NodeLoaderParts& parts) {
  return system.spawn(node_loader, parts);
}

}  // namespace troupe
