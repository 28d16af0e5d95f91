#pragma once

#include <caf/error.hpp>
#include <caf/mailbox_element.hpp>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/outbox.hpp"
#include "actors/remote/detail/proxy.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

class MemoryReturn;
class Outbound;
class Proxies;

/// Messages that peers do not accept yet, and the sender's end of credits.
///
/// A peer offers an amount of charge for messages that none of its actors has looked at. The credits that it sends say
/// how much it has handled since the start. Messages beyond that wait here, each at its proxy, in the order of sending.
/// What must hold:
/// - While a proxy has anything blocked, everything sent to it is blocked behind it. Answers and exit messages need no
///   credit, but they keep their place, too. Urgent messages overtake ordinary ones, as in a mailbox, and nothing else.
/// - A DOWN notice of an actor here is not sent before a message that was blocked earlier: the actor may have sent it,
///   and after DOWN the peer's handle is dead. Tickets show which came first.
/// - Proxies take turns, since all share the peer's credit.
/// Threads: the control lane's.
class Backlog {
 public:
  Backlog(Context& context, Outbound& outbound, MemoryReturn& memory, SendsInProgress& unfinished)
      : context_(context), outbound_(outbound), memory_(memory), unfinished_(unfinished) {}

  /// Whether a message may be sent now.
  bool may_send(const Proxy& proxy, const caf::mailbox_element& message) const noexcept;
  void block(Proxy& proxy, caf::mailbox_element_ptr message);
  /// The peer has reported what it has handled: sends the messages for which there is credit now.
  void take_in_credit(PeerState& from, const wire::Header& header, std::span<const std::byte> edges, Proxies& proxies);
  /// An actor of this process has ended: its DOWN notice follows everything that is blocked.
  void report_end(PeerState& to, caf::actor_id actor, const caf::error& reason);
  /// The remote actor has ended: its blocked messages are answered with `why`.
  void drop(Proxy& proxy, const caf::error& why);
  /// The same for all blocked messages to a peer that is lost, or when this process's remote actors end.
  void drop(PeerState& to, const caf::error& why);

 private:
  bool has_space(const Proxy& proxy, bool is_urgent) const noexcept;
  static bool may_overtake(const caf::mailbox_element& message) noexcept;
  void send_blocked(PeerState& to);
  void send_down_notices(PeerState& to);

  Context& context_;
  Outbound& outbound_;
  MemoryReturn& memory_;
  SendsInProgress& unfinished_;
};

}  // namespace troupe::remote
