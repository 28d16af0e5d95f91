#include "actors/loader_actor.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"

namespace troupe {

/// Hands the pool's news on to the loader, from whatever thread a slot comes back on.
class SlotMessenger final : public SlotWaker {
 public:
  SlotMessenger(LeasePool& pool, LoaderActor loader) : pool_(pool), loader_(std::move(loader)) { pool_.on_free(this); }
  ~SlotMessenger() { pool_.on_free(nullptr); }
  void slot_free() noexcept override { caf::anon_send(loader_, SlotFree{}); }

 private:
  LeasePool& pool_;
  LoaderActor loader_;
};

namespace {

struct LoaderState {
  static constexpr const char* name = "loader";
  std::unique_ptr<SampleOrder> order;
  std::unique_ptr<SlotMessenger> messenger;
  std::optional<Ledger> ledger;
  std::vector<std::uint64_t> indices;
  Step step{};
  bool testing = false;          // going through the test set after `step`
  std::uint64_t test_batch = 0;  // next batch of that pass
};
using Self = LoaderActor::stateful_pointer<LoaderState>;

/// The samples of the next training batch; moves on.
BatchLease next_training(LoaderState& s, const LoaderParts& parts) {
  const SamplePart mine = s.ledger->part(s.step, parts.rank);
  s.indices.resize(mine.count);
  s.order->fill(mine.first, s.indices);
  const BatchLease batch{.lease = {}, .step = s.step, .rows = static_cast<std::uint32_t>(mine.count)};
  if (parts.schedule.evaluates(s.step)) {
    s.testing = true;
    s.test_batch = 0;
  } else {
    s.step = next(s.step);
  }
  return batch;
}

/// The samples of the next test batch, fewer than there is room for at the end; at least one batch, so that every rank
/// has something to say. Moves on.
BatchLease next_test(LoaderState& s, const LoaderParts& parts) {
  const SamplePart mine = s.ledger->test_part(s.step, parts.rank);
  const std::uint64_t done = s.test_batch * parts.batch.rows;
  const std::uint64_t rows = std::min<std::uint64_t>(parts.batch.rows, mine.count - std::min(done, mine.count));
  s.indices.resize(rows);
  std::iota(s.indices.begin(), s.indices.end(), mine.first + done);
  BatchLease batch{.lease = {}, .step = s.step, .evaluation = true, .rows = static_cast<std::uint32_t>(rows)};
  ++s.test_batch;
  if (done + rows >= mine.count) {
    batch.last = true;
    s.testing = false;
    s.step = next(s.step);
  }
  return batch;
}

/// Fills one slot: as many messages come as slots, so none stays empty, and an exit message never waits for more than
/// one.
void fill_slot(Self self, const LoaderParts& parts, const BatchReceiver& device) {
  LoaderState& s = self->state;
  if (!s.testing && (s.step.value >= parts.schedule.steps || !s.ledger->knows(s.step))) return;
  auto slot = parts.pool.try_take();
  if (!slot) return;
  const Source& source = s.testing ? parts.test : parts.train;
  BatchLease batch = s.testing ? next_test(s, parts) : next_training(s, parts);
  source.fill(s.indices, parts.batch, slot->data());
  batch.lease = std::move(*slot).publish();
  self->send(device, std::move(batch));
}

LoaderActor::behavior_type loader_actor(Self self, LoaderParts parts, BatchReceiver device) {
  end_with_own_errors(self);
  self->state.step = {parts.schedule.first_step};
  self->state.ledger = parts.ledger;
  self->state.order = std::make_unique<SampleOrder>(parts.train.count_samples(), parts.seed);
  self->state.messenger = std::make_unique<SlotMessenger>(parts.pool, LoaderActor{self});
  self->set_down_handler([=](caf::down_msg&) { self->quit(); });  // nobody takes batches any more
  self->monitor(device);
  for (std::size_t slot = 0; slot < parts.pool.count_slots(); ++slot) self->send(self, SlotFree{});
  return {[=](SlotFree) { fill_slot(self, parts, device); },
          [=](const LedgerNews& news) {
            self->state.ledger->append({{news.first}, news.rows}, {news.until});
            // Slots that came back while nothing was known of the next step.
            for (std::size_t slot = 0; slot < parts.pool.count_free(); ++slot) self->send(self, SlotFree{});
          }};
}

}  // namespace

LoaderActor spawn_loader(caf::actor_system& system, const LoaderParts& parts, BatchReceiver device) {
  return system.spawn(loader_actor, parts, std::move(device));
}

}  // namespace troupe
