#pragma once

#include <caf/actor_control_block.hpp>
#include <memory>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

/// Tells peers how much of what they sent is dealt with here: the receiver's side of what Backlog does for the sender.
/// Reports say what was dealt with since the start, so one that is late or doubled does no harm. Threads: the control
/// lane's; what is counted (PeerIntake, EdgeIntake) any.
class Credits {
 public:
  Credits(Context& context, FrameSender& frames, KnownActors& actors)
      : context_(context), frames_(frames), actors_(actors) {}

  /// Counts what `peer` sends from now on.
  void add_peer(PeerState& peer);
  /// The counter of one peer's messages to one actor.
  std::shared_ptr<EdgeIntake>& intake_of(PeerState& from, caf::actor_id actor, Edge& edge);
  /// A message that is not delivered counts as dealt with at once, if it counts.
  static void dealt_with(PeerState& from, const wire::Header& header);
  /// The sender has set a window for an actor: reports about it come sooner.
  void take_in_window(PeerState& from, const wire::Header& header);
  /// Finds actors that wait for another message than those that lie in their mailboxes: what they have skipped takes no
  /// room in what their senders may send. From time to time.
  void look_for_skipped();

 private:
  void report(PeerState& to);

  Context& context_;
  FrameSender& frames_;
  KnownActors& actors_;
};

}  // namespace troupe::remote
