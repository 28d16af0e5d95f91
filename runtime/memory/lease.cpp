#include "runtime/memory/lease.hpp"

#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {

/// A slot's state in its pool. From publish() until the slot is free again it keeps the pool's state alive.
struct Slot::State final : Waker {
  std::weak_ptr<LeasePool::State> pool;
  std::shared_ptr<LeasePool::State> keep;  // set while `left` is not 0
  std::uint32_t index = 0;
  Memory memory;
  std::byte* data = nullptr;
  std::atomic<std::uint32_t> left{0};  // points not yet reached, plus one for the lease itself

  void count_down() noexcept;
  void reached(Point, Status) noexcept override { count_down(); }
};

struct LeasePool::State {
  explicit State(AddressSpace& address_space, std::size_t slots) : space(address_space), places(slots) {}
  AddressSpace& space;
  std::vector<Slot::State> places;
  std::mutex mutex;                 // guards free
  std::vector<std::uint32_t> free;  // the slot returned last is taken first: its memory is still in the cache
  std::recursive_mutex notifying;   // guards waker, also while it runs: on_free(nullptr) waits for that
  SlotWaker* waker = nullptr;

  void give_back(std::uint32_t index) noexcept {
    {
      const std::lock_guard lock{mutex};
      free.push_back(index);  // within the capacity reserved
    }
    const std::lock_guard lock{notifying};
    if (waker != nullptr) waker->slot_free();
  }
};

void Slot::State::count_down() noexcept {
  if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const auto pool_state = std::move(keep);  // may be the last reference to the pool, and so to this slot
  pool_state->give_back(index);
}

/// Shared by the copies of one lease; destroyed with the last of them.
struct Lease::State {
  State(std::shared_ptr<Slot::State> its_slot, Point from) noexcept : slot(std::move(its_slot)), valid_from(from) {}
  ~State() { slot->count_down(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<Slot::State> slot;  // which keeps the pool's state
  const Point valid_from;
};

Memory Lease::memory() const noexcept { return state_->slot->memory; }
Point Lease::valid_from() const noexcept { return state_->valid_from; }

void Lease::free_after(Point point) {
  Slot::State& slot = *state_->slot;
  Timeline& line = slot.pool.lock()->space.timeline(point.line);
  if (line.value() >= point.value) return;
  // Before wake(), which may call reached() at once, also from another thread.
  slot.left.fetch_add(1, std::memory_order_relaxed);
  try {
    line.wake(point.value, slot);
  } catch (...) {
    slot.left.fetch_sub(1, std::memory_order_relaxed);  // never the last count: this lease still counts
    throw;
  }
}

Slot::Slot(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
Slot::Slot(Slot&&) noexcept = default;

Slot& Slot::operator=(Slot&& other) noexcept {
  Slot old{std::exchange(state_, std::move(other.state_))};
  return *this;
}

Slot::~Slot() {
  if (state_) state_->pool.lock()->give_back(state_->index);
}

Memory Slot::memory() const noexcept { return state_->memory; }
std::byte* Slot::data() const noexcept { return state_->data; }

/// `left` starts at 1, for the lease: points that are reached while the lease still exists cannot free the slot. From
/// here on the slot keeps the pool's state, because points may be reached after the pool and all leases are gone.
Lease Slot::publish(Point valid_from) && {
  state_->left.store(1, std::memory_order_relaxed);
  Lease lease{std::make_shared<Lease::State>(state_, valid_from)};
  state_->keep = state_->pool.lock();
  state_.reset();
  return lease;
}

LeasePool::LeasePool(AddressSpace& space, Arena& arena, std::size_t slots, std::size_t slot_bytes)
    : state_(std::make_shared<State>(space, slots)) {
  TROUPE_CHECK(slots > 0 && slot_bytes > 0, Code::invalid, "a pool of ", slots, " slots of ", slot_bytes,
               " bytes: both must be positive");
  state_->free.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) {
    Slot::State& place = state_->places[i];
    place.pool = state_;
    place.index = static_cast<std::uint32_t>(i);
    place.memory = arena.allocate(slot_bytes);
    place.data = arena.base() + place.memory.offset;
    state_->free.push_back(static_cast<std::uint32_t>(slots - 1 - i));
  }
}

LeasePool::~LeasePool() { on_free(nullptr); }

std::optional<Slot> LeasePool::try_take() {
  const std::lock_guard lock{state_->mutex};
  if (state_->free.empty()) return std::nullopt;
  const std::uint32_t index = state_->free.back();
  state_->free.pop_back();
  return Slot{std::shared_ptr<Slot::State>{state_, &state_->places[index]}};
}

std::size_t LeasePool::count_free() const noexcept {
  const std::lock_guard lock{state_->mutex};
  return state_->free.size();
}

std::size_t LeasePool::count_slots() const noexcept { return state_->places.size(); }

void LeasePool::on_free(SlotWaker* waker) noexcept {
  const std::lock_guard lock{state_->notifying};
  state_->waker = waker;
}

}  // namespace troupe
