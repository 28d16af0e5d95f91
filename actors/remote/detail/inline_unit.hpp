#pragma once

#include <atomic>
#include <caf/execution_unit.hpp>
#include <caf/resumable.hpp>
#include <deque>
#include <functional>
#include <memory>

#include "actors/remote/detail/lane_access.hpp"
#include "actors/remote/inline_executor.hpp"

namespace troupe::remote {

/// Runs actors on the control lane's thread, between one progress of the transport and the next.
class InlineUnit final : public InlineExecutor, public caf::execution_unit {
 public:
  /// `slow` (may be empty): called on the lane's thread when an actor has blocked the lane for longer than `longest`,
  /// with whether the scheduler now runs it.
  using Slow = std::function<void(caf::actor_id actor, Clock::duration took, bool moved)>;
  InlineUnit(caf::actor_system& system, std::shared_ptr<LaneAccess> lane_access, Clock::duration longest, Slow slow);

  caf::execution_unit* unit() noexcept override { return this; }
  bool runs() const noexcept override { return !closed_.load(std::memory_order_acquire); }
  void exec_later(caf::resumable* job) override;

  // Called on the lane's thread:
  /// Runs actors that are ready, and those that become ready by that, up to a limit. Returns whether there were any.
  bool run();
  /// Passes a message to an actor of this unit, which handles it at once if it can.
  void hand(troupe::detail::InlineHandler& actor, const caf::strong_actor_ptr& handle,
            caf::mailbox_element_ptr message);
  /// Passes it a call; false: it cannot take the call now.
  bool hand(troupe::detail::InlineHandler& actor, caf::abstract_actor& itself, Call& call);
  /// From now on no job runs here: the scheduler runs those that are ready and later ones. Also called by another
  /// thread when the lane has ended.
  void close();

 private:
  void to_scheduler(caf::resumable* job);
  void run_one(caf::resumable* job);
  template <class Turn>
  bool timed(Turn turn, caf::abstract_actor* actor);
  bool note_slow(caf::abstract_actor* actor, Clock::duration took);

  const std::shared_ptr<LaneAccess> lane_access_;
  const Clock::duration longest_;
  const Slow slow_;
  std::deque<caf::resumable*> ready_;  // each holds a reference
  unsigned turns_ = 0;
  bool suspicious_ = false;  // the last turn took long
  bool running_ = false;
  std::atomic<bool> closed_{false};
};

/// The lane access of the unit that runs an actor on this thread at present; null: none.
const LaneAccess* running_inline() noexcept;

}  // namespace troupe::remote
