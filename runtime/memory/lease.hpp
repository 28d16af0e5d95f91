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

/// The right to read one filled slot: a counted handle, to be copied into messages; its memory is immutable. When the
/// last copy has ended and every point given to `free_after` is reached (or poisoned), the slot is the pool's again:
/// that is the acknowledgement. Threads: each copy by one thread at a time. Outlives its pool safely, not its address
/// space.
class Lease {
 public:
  Lease() noexcept = default;
  explicit operator bool() const noexcept { return state_ != nullptr; }
  Memory memory() const noexcept;
  /// The content may be read from this point on.
  Point valid_from() const noexcept;
  /// The slot may not be reused before `point`; may be called more than once, the slot waits for all. Throws
  /// Error{invalid} when the point's line is unknown here.
  void free_after(Point point);

 private:
  friend class Slot;
  struct State;
  explicit Lease(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// The right to fill one slot: the owner's lease. Moves, never copies; dropped unfilled, the slot goes back at once.
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

/// Told that a slot came back. May only hand the news on (see Waker).
class SlotWaker {
 public:
  virtual void slot_free() noexcept = 0;

 protected:
  ~SlotWaker() = default;
};

/// A fixed number of equal slots in an arena. Without a free slot there is no lease: a loader needs no other flow
/// control. Threads: any.
class LeasePool {
 public:
  /// Takes `slots` times `slot_bytes` (each 64-byte aligned) from `arena`.
  LeasePool(AddressSpace& space, Arena& arena, std::size_t slots, std::size_t slot_bytes);
  ~LeasePool();
  /// A free slot, or nothing.
  std::optional<Slot> try_take();
  std::size_t count_free() const noexcept;
  std::size_t count_slots() const noexcept;
  /// `waker` is told of every slot that comes back from now on. Null: nobody; the one before is not called any more
  /// once this has returned.
  void on_free(SlotWaker* waker) noexcept;

 private:
  friend class Lease;
  friend class Slot;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe
