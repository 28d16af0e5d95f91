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

/// What peers do not take yet, and the credits that say so.
///
/// A peer offers an amount of charge for messages that no actor of its has looked at; the credits that it sends say
/// what it has dealt with since the start. Messages beyond wait here, each at its proxy, in the order of sending. What
/// must hold:
/// - While a proxy has anything blocked, all that is sent to it is blocked behind it, answers and exit messages too:
///   they need no room, but they keep their place.
/// - A DOWN notice of an actor here is not sent before a message that was blocked earlier: the actor may have sent it,
///   and after DOWN the peer's handle is dead. Tickets say which was first.
/// - Proxies take turns, since all share what the peer takes.
/// Threads: the control lane's.
class Backlog {
 public:
  Backlog(Context& context, Outbound& outbound, MemoryReturn& memory, Unfinished& unfinished)
      : context_(context), outbound_(outbound), memory_(memory), unfinished_(unfinished) {}

  /// Whether a message may leave now.
  bool may_send(const Proxy& proxy, const caf::mailbox_element& message) const noexcept {
    return proxy.blocked.empty() && (has_room(proxy) || is_free(message));
  }
  void block(Proxy& proxy, caf::mailbox_element_ptr message);
  /// The peer has told what it has dealt with: sends what there is room for now.
  void take_in_credit(PeerState& from, const wire::Header& header, std::span<const std::byte> edges, Proxies& proxies);
  /// An actor of this process has ended: the news follows all that is blocked.
  void tell_end(PeerState& to, caf::actor_id actor, const caf::error& reason);
  /// The remote actor has ended: what is blocked for it is answered with `why`.
  void drop(Proxy& proxy, const caf::error& why);
  /// The same for all of a peer that is gone, or when this process's part ends.
  void drop(PeerState& to, const caf::error& why);

 private:
  bool has_room(const Proxy& proxy) const noexcept;
  void send_blocked(PeerState& to);
  void send_down_notices(PeerState& to);

  Context& context_;
  Outbound& outbound_;
  MemoryReturn& memory_;
  Unfinished& unfinished_;
};

}  // namespace troupe::remote
