#pragma once

#include <caf/actor_control_block.hpp>
#include <memory>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

/// Reports to peers how many of their messages have been handled here: the receiver's end of credits; Backlog is the
/// sender's. Reports give sums since the start, so a late or duplicated one does no harm. Threads: the control lane's;
/// the counters (PeerIntake, EdgeIntake) any.
class Credits {
 public:
  Credits(Context& context, FrameSender& frames, KnownActors& actors)
      : context_(context), frames_(frames), actors_(actors) {}

  /// Counts the messages of `peer` from now on.
  void add_peer(PeerState& peer);
  /// The counter of one peer's messages to one actor.
  std::shared_ptr<EdgeIntake>& intake_of(PeerState& from, caf::actor_id actor, Edge& edge);
  /// A counted message that is not delivered counts as handled at once.
  static void count_handled(PeerState& from, const wire::Header& header);
  /// The sender has set a window for an actor: reports about that actor are sent sooner.
  void take_in_window(PeerState& from, const wire::Header& header);
  /// Finds actors that wait for a message other than those in their mailboxes: messages that they have skipped must not
  /// take their senders' credit. Called from time to time. Returns whether there were any.
  bool look_for_skipped();

 private:
  void report(PeerState& to);
  static void sweep(PeerState& from);

  Context& context_;
  FrameSender& frames_;
  KnownActors& actors_;
};

}  // namespace troupe::remote
