#include "actors/loader_actor.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "actors/detail/filling.hpp"
#include "actors/detail/slot_messenger.hpp"
#include "runtime/data/batch_cursor.hpp"

namespace troupe {
namespace {

using Filling = detail::Filling<Slot>;

struct LoaderState {
  static constexpr const char* name = "loader";
  std::unique_ptr<SampleOrder> order;
  std::unique_ptr<detail::SlotMessenger<LoaderActor>> messenger;
  std::optional<SampleLedger> ledger;
  std::optional<BatchCursor> cursor;
  std::deque<std::shared_ptr<Filling>> filling;  // in the order in which they will be sent
};
using LoaderSelf = LoaderActor::stateful_pointer<LoaderState>;

/// Sends the filled batches, up to the first one that is not filled yet.
void send_filled(LoaderSelf self, const BatchReceiver& device) {
  std::deque<std::shared_ptr<Filling>>& filling = self->state.filling;
  for (; !filling.empty() && filling.front()->done(); filling.pop_front()) {
    Filling& batch = *filling.front();
    batch.check();
    self->send(device, BatchLease{std::move(batch.place).publish(), batch.head.step, batch.head.evaluation,
                                  batch.head.last, batch.head.rows, std::move(batch.head.relieved)});
  }
}

/// Asks for one batch. There is one message for each slot, so that no slot stays empty and an exit message waits for at
/// most one fill.
void fill_slot(LoaderSelf self, const LoaderParts& parts, const BatchReceiver& device) {
  LoaderState& s = self->state;
  if (!s.cursor->has_next(*s.ledger)) return;
  auto slot = parts.pool.try_take();
  if (!slot) return;
  std::vector<Sample> samples;
  BatchHead head = s.cursor->next(*s.ledger, *s.order, samples);
  const Source& source = head.evaluation ? parts.test : parts.train;
  const TraceSpan span(parts.trace, "fill batch", {.step = head.step.value});
  const auto batch = std::make_shared<Filling>(std::move(head), std::move(samples), std::move(*slot),
                                               [to = LoaderActor{self}] { caf::anon_send(to, BatchFilled{}); });
  s.filling.push_back(batch);
  const FillRequest request{batch->samples, parts.seed, &parts.batch, batch->place.data()};
  write_sample_keys(request);
  source.fill(request, parts.threads, batch);
  if (batch->returned()) send_filled(self, device);
}

LoaderActor::behavior_type loader_actor(LoaderSelf self, LoaderParts parts, BatchReceiver device) {
  end_with_own_errors(self);
  self->state.ledger = parts.ledger;
  self->state.cursor.emplace(parts.schedule, parts.rank, parts.batch.rows());
  self->state.order = std::make_unique<SampleOrder>(parts.train.count_samples(), parts.seed);
  self->state.messenger = std::make_unique<detail::SlotMessenger<LoaderActor>>(parts.pool, LoaderActor{self});
  self->set_down_handler([=](caf::down_msg&) { self->quit(); });  // nothing receives batches any more
  self->monitor(device);
  for (std::size_t slot = 0; slot < parts.pool.count_slots(); ++slot) self->send(self, SlotFree{});
  return {[=](SlotFree) { fill_slot(self, parts, device); }, [=](BatchFilled) { send_filled(self, device); },
          [=](const LedgerUpdate& ledger_update) {
            self->state.ledger->append({{ledger_update.first}, ledger_update.rows}, {ledger_update.until});
            // For slots that were returned while the next step was not known yet.
            for (std::size_t slot = 0; slot < parts.pool.count_free(); ++slot) self->send(self, SlotFree{});
          }};
}

}  // namespace

LoaderActor spawn_loader(caf::actor_system& system, const LoaderParts& parts, BatchReceiver device) {
  return system.spawn(loader_actor, parts, std::move(device));
}

}  // namespace troupe
