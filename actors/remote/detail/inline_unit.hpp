#pragma once

#include <atomic>
#include <caf/execution_unit.hpp>
#include <caf/resumable.hpp>
#include <deque>
#include <functional>
#include <memory>

#include "actors/remote/detail/gate.hpp"
#include "actors/remote/inline_home.hpp"

namespace troupe::remote {

/// Runs actors on the control lane's thread, between the transport's progress and the next look at it.
class InlineUnit final : public InlineHome, public caf::execution_unit {
 public:
  /// `slow` (may be empty): told of an actor that held the lane up for longer than `longest`, and whether the scheduler
  /// takes it over. On the lane's thread.
  using Slow = std::function<void(caf::actor_id actor, Clock::duration took, bool moved)>;
  InlineUnit(caf::actor_system& system, std::shared_ptr<Gate> gate, Clock::duration longest, Slow slow);

  caf::execution_unit* unit() noexcept override { return this; }
  bool runs() const noexcept override { return !closed_.load(std::memory_order_acquire); }
  void exec_later(caf::resumable* job) override;

  // The lane's thread:
  /// Runs what is ready, and what becomes ready by that, up to a bound; whether there was anything.
  bool run();
  /// Hands a message to an actor of this unit, at once if it can.
  void hand(troupe::detail::InlineGuest& actor, const caf::strong_actor_ptr& handle, caf::mailbox_element_ptr message);
  /// Hands it a call; false: it takes none here and now.
  bool hand(troupe::detail::InlineGuest& actor, caf::abstract_actor& itself, Call& call);
  /// No job is run here any more: the scheduler takes what is ready and what comes. Also by another thread when the
  /// lane has ended.
  void close();

 private:
  void to_scheduler(caf::resumable* job);
  void run_one(caf::resumable* job);
  template <class Turn>
  bool timed(Turn turn, caf::abstract_actor* actor);
  bool note_slow(caf::abstract_actor* actor, Clock::duration took);

  const std::shared_ptr<Gate> gate_;
  const Clock::duration longest_;
  const Slow slow_;
  std::deque<caf::resumable*> ready_;  // with a reference each
  unsigned turns_ = 0;
  bool suspicious_ = false;  // the last turn was long
  bool running_ = false;
  std::atomic<bool> closed_{false};
};

/// The gate of the unit that runs an actor on this thread right now; null: none does.
const Gate* running_inline() noexcept;

}  // namespace troupe::remote
