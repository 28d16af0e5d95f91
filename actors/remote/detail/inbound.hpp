#pragma once

#include <caf/mailbox_element.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/remote/detail/backlog.hpp"
#include "actors/remote/detail/call_table.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/credits.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/message_reader.hpp"
#include "actors/remote/detail/open_requests.hpp"
#include "actors/remote/detail/proxies.hpp"
#include "actors/remote/detail/tensor_loans.hpp"

namespace troupe::remote {

class InlineUnit;
class MemoryReturn;

/// Receives frames and delivers messages in the order in which they were sent.
///
/// Frames arrive in any order: lanes overtake each other, bodies come in pieces. Two numbers restore CAF's guarantees:
/// - header.sequence counts the messages of one process to one actor. A message that arrives early is held until those
///   before it were delivered. Thus each actor gets its messages in order, and actors do not wait for each other.
/// - header.order counts everything of one process that is numbered. A DOWN notice waits until everything with a lower
///   number was handled, since messages that an actor sent before it ended must not come after the notice of its end.
/// Every number must therefore be handled exactly once, whatever happens to its message: delivered, refused, empty, or
/// dropped with its actor. A number that is skipped would block everything after it. A number that comes twice violates
/// the protocol, as does anything else with which a peer would take more memory here than it was granted. Threads: the
/// control lane's.
class Inbound {
 public:
  Inbound(Context& context, FrameSender& frames, KnownActors& actors, OpenRequests& requests, TensorLoans& loans,
          Proxies& proxies, Backlog& backlog, Credits& credits, CallTable& calls, InlineUnit& inline_unit,
          MemoryReturn& memory)
      : context_(context),
        frames_(frames),
        actors_(actors),
        requests_(requests),
        loans_(loans),
        reader_(context, loans),
        proxies_(proxies),
        backlog_(backlog),
        credits_(credits),
        calls_(calls),
        inline_(inline_unit),
        memory_(memory) {}

  void take_in(Peer from, Arrival&& arrival);
  /// An actor of this process has ended: notifies its watchers, and handles the messages that were held for it.
  void actor_ended(KnownActor&& actor, caf::actor_id id, const caf::error& reason);
  /// Forgets messages of a lost peer that were not delivered.
  void forget(PeerState& of);
  /// Ends a round: tells peers how many of their messages were refused for lack of memory. Returns whether any were.
  bool flush() { return !refused_.empty() && tell_of_refused(); }

 private:
  void take_in_batch(PeerState& from, std::span<const std::byte> heads);
  void take_in_frame(PeerState& from, const wire::Header& header, Arrival& arrival);
  void take_in_message(PeerState& from, const wire::Header& header, Arrival& arrival);
  void take_in_monitor(PeerState& from, caf::actor_id actor);
  void take_in_down(PeerState& from, const wire::Header& header, const Arrival& arrival);
  void take_in_passed(PeerState& from, const wire::Header& header);
  void take_in_refused(const PeerState& from, std::uint64_t count);

  void hold(PeerState& from, const wire::Header& header, Arrival& arrival, Edge& edge);
  void deliver(PeerState& from, const wire::Header& header, Arrival& arrival, const Edge& edge, KnownActor& to);
  void deliver_message(PeerState& from, const wire::Header& header, Arrival& arrival, const Edge& edge, KnownActor& to);
  bool has_memory_for(const wire::Header& header);
  Status refuse_for_memory(PeerState& from, const wire::Header& header, const Arrival& arrival);
  void note_own_request(const wire::Header& header);
  bool ends_request(PeerState& from, const wire::Header& header);
  void hand_over(PeerState& from, const wire::Header& header, caf::mailbox_element_ptr message, KnownActor& to);
  void fail(PeerState& from, const wire::Header& header, const caf::strong_actor_ptr& sender, KnownActor& to,
            const Status& why);
  bool tell_of_refused();
  void end_link(PeerState& from, const caf::mailbox_element& message, KnownActor& to);
  void change_link(PeerState& from, const wire::Header& header, KnownActor& to);
  void handled(PeerState& from, std::uint32_t order);
  void end_remote(PeerState& from, const Ended& ended);
  const caf::strong_actor_ptr& sender_of(PeerState& from, const wire::Header& header);

  Context& context_;
  FrameSender& frames_;
  KnownActors& actors_;
  OpenRequests& requests_;
  TensorLoans& loans_;
  MessageReader reader_;
  Proxies& proxies_;
  Backlog& backlog_;
  Credits& credits_;
  CallTable& calls_;
  InlineUnit& inline_;
  MemoryReturn& memory_;
  std::vector<PeerState*> refused_;  // peers to be told of refused messages
};

}  // namespace troupe::remote
