#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

class LeasePool;

/// The right to read one filled slot: a reference-counted handle, which messages copy; its memory does not change. When
/// the last copy has ended and every point given to `free_after` is reached (or poisoned), the slot returns to the
/// pool: that is the acknowledgement. Threads: each copy is used by one thread at a time. A lease may outlive its pool,
/// but not its address space.
class Lease {
 public:
  Lease() noexcept = default;
  explicit operator bool() const noexcept { return state_ != nullptr; }
  Memory memory() const noexcept;
  /// The content may be read from this point on.
  Point valid_from() const noexcept;
  /// The slot may not be reused before `point`. May be called several times: the slot waits for all points. Throws
  /// Error{invalid} if the point's timeline is unknown here.
  void free_after(Point point);

 private:
  friend class Slot;
  struct State;
  explicit Lease(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// The right to fill one slot. Moved, never copied; if it is destroyed without publish(), the slot returns at once.
class Slot {
 public:
  Slot(Slot&&) noexcept;
  Slot& operator=(Slot&&) noexcept;
  ~Slot();
  Memory memory() const noexcept;
  std::byte* data() const noexcept;
  /// Ends the right to write and begins the right to read.
  Lease publish(Point valid_from = {}) &&;

 private:
  friend class Lease;
  friend class LeasePool;
  struct State;
  explicit Slot(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

/// Called when a slot returns to the pool. It may only post a message or set a flag (see Waker).
class SlotWaker {
 public:
  virtual void slot_free() noexcept = 0;

 protected:
  ~SlotWaker() = default;
};

/// A fixed number of equal slots in an arena. Without a free slot there is no lease: this back-pressure is the only
/// flow control that a loader needs. Threads: any.
class LeasePool {
 public:
  /// Takes `slots` times `slot_bytes` (each 64-byte aligned) from `arena`.
  LeasePool(AddressSpace& space, Arena& arena, std::size_t slots, std::size_t slot_bytes);
  ~LeasePool();
  /// A free slot; empty if there is none.
  std::optional<Slot> try_take();
  std::size_t count_free() const noexcept;
  std::size_t count_slots() const noexcept;
  /// From now on `waker` is called for every slot that returns. Null: no waker. The previous waker is not called any
  /// more once this function has returned.
  void on_free(SlotWaker* waker) noexcept;

 private:
  friend class Lease;
  friend class Slot;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe
