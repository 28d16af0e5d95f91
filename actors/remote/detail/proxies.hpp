#pragma once

#include <caf/proxy_registry.hpp>

#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/proxy.hpp"
#include "runtime/base/mpsc_stack.hpp"

namespace troupe::remote {

class Outbound;

/// The proxies of other processes' actors. CAF asks for one wherever a message names such an actor, on any thread and
/// with its registry locked; therefore making a proxy only posts a task. In its first turn on the control lane, the
/// actor's process is asked to report the actor's end. Threads: the control lane's, unless stated otherwise.
class Proxies final : public caf::proxy_registry::backend {
 public:
  Proxies(Context& context, FrameSender& frames, Outbound& outbound);
  /// Ends all of them, after the lane access was closed.
  void clear();

  /// Any thread. Throws Error{invalid} for a peer that was not added.
  caf::actor handle(Peer peer, caf::actor_id actor);
  /// Any thread; null: there is none.
  caf::strong_actor_ptr find(const PeerState& of, caf::actor_id actor) { return registry_.get(of.node, actor); }
  caf::strong_actor_ptr find_or_make(const PeerState& of, caf::actor_id actor) {
    return registry_.get_or_put(of.node, actor);
  }
  std::size_t count(const PeerState& of) { return registry_.count_proxies(of.node); }
  /// Gives a proxy its first turn, if it has had none.
  void serve(Proxy& proxy);
  /// Gives all new proxies their first turn. An actor that monitors another one and then sends a message elsewhere
  /// relies on the monitor being set first; therefore a proxy calls this before it transmits its messages.
  void serve_new() {
    if (!new_.empty()) serve_all_new();
  }
  /// Ends a proxy: monitors and links fire with `reason`.
  void end(const PeerState& of, caf::actor_id actor, const caf::error& reason) {
    registry_.erase(of.node, actor, reason);
  }
  void end_all(const PeerState& of, const caf::error& reason);
  /// The reason with which actors of a lost process end.
  static caf::error unreachable(const Status& why);

  // Of proxy_registry::backend; any thread, with the registry locked.
  caf::strong_actor_ptr make_proxy(caf::node_id node, caf::actor_id actor) override;
  void set_last_hop(caf::node_id*) override {}

 private:
  void serve_all_new();

  Context& context_;
  FrameSender& frames_;
  Outbound& outbound_;
  caf::proxy_registry registry_;
  MpscStack<Proxy, &Proxy::next_new> new_;  // each holds a reference; any thread adds
};

}  // namespace troupe::remote
