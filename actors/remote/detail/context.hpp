#pragma once

#include <caf/actor_system.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/scoped_execution_unit.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "actors/remote/detail/budget.hpp"
#include "actors/remote/detail/codec.hpp"
#include "actors/remote/detail/lane_access.hpp"
#include "actors/remote/detail/peer_state.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe::remote {

/// The actor id of a process's directory; CAF counts from 1 and never reaches it.
inline constexpr caf::actor_id kDirectory = caf::actor_id{1} << 62;

/// Answers a request with an error; does nothing for other messages.
void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const caf::error& error);
void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const Status& status);

/// The same status with as much of its text as fits into a head.
Status shortened(const Status& why);

/// Whether it is an exit message, which asks the receiver to end.
bool is_exit(const caf::mailbox_element& message);
/// Whether a message is not counted: answers to requests, and exit messages. Their receivers may be the actors that
/// would make space. They keep their place behind earlier messages (ADR 0005).
bool is_free(const caf::mailbox_element& message);

/// What the parts of one process's remote actors share. Threads: const members may be used by any, the rest by the
/// control lane's.
struct Context {
  Context(caf::actor_system& its_system, AddressSpace& its_space, LaneLoop& control_lane, LaneLoop& bulk_lane,
          Peer itself, RemoteOptions its_options);

  /// The bytes of all other processes' unhandled messages that this process accepts.
  std::uint64_t offers() const noexcept {
    return options.unhandled_bytes != 0 ? options.unhandled_bytes : incoming->limit() / 2;
  }
  /// Throws Error{invalid} for a peer that was added before, or that has the identity of this process or of another
  /// peer, Error{unsupported} for a number that does not fit into a header. Before the lanes run.
  PeerState& add_peer(Peer number, const caf::node_id& node);
  /// Null: it was not added. Any thread once the lanes run, since the peers do not change any more.
  PeerState* peer(Peer number) noexcept;
  PeerState* peer(const caf::node_id& node) noexcept;
  /// A message was refused here, and no answer to it is expected.
  void drop(const std::string& what);
  /// `of` has violated the protocol and will be lost: not at once, since callers may still use its state.
  void lose_later(PeerState& of, const std::string& why);

  caf::actor_system& system;
  AddressSpace& space;
  LaneLoop& control;
  LaneLoop& bulk;
  Transport& transport;  // of both lanes; not taken from a lane, which may end before the other
  const Peer self;
  const RemoteOptions options;
  const std::shared_ptr<LaneAccess> lane_access;
  const std::shared_ptr<Budget> outgoing;  // messages that wait here
  const std::shared_ptr<Budget> incoming;  // messages of peers in mailboxes here
  std::map<Peer, std::unique_ptr<PeerState>> peers;
  /// The engine's: disconnects a peer that was found to be dead or to violate the protocol.
  std::function<void(PeerState&, const Status&)> lose;
  caf::scoped_execution_unit unit;
  Codec codec;
  bool ended = false;  // this process's remote actors: nothing is sent or accepted any more
  struct {
    Tally sent, delivered, reordered, dropped;
  } counts;  // any thread reads them

 private:
  std::unordered_map<caf::node_id, PeerState*> by_node_;
};

}  // namespace troupe::remote
