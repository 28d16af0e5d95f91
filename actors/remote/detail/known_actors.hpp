#pragma once

#include <caf/actor_control_block.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/bodies.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/inline_home.hpp"

namespace troupe::remote {

/// A frame that arrived, with all that belongs to it: the bytes live during the call only.
struct Arrival {
  std::span<const std::byte> head;
  Memory payload;
  std::shared_ptr<const void> payload_owner;
  bool refused = false;   // there was no memory for its payload
  ArrivedBody body = {};  // one that came in pieces
};

/// A message that waits for others to the same actor, with its head copied.
struct HeldMessage {
  std::vector<std::byte> head;
  Memory payload;
  std::shared_ptr<const void> payload_owner;
  bool refused = false;
  ArrivedBody body;
};

/// The messages of one process to one actor.
struct Edge {
  std::uint32_t next = 0;  // the number of the message whose turn it is
  std::unordered_map<std::uint32_t, HeldMessage> held;
  std::shared_ptr<EdgeIntake> intake;  // null: none was counted yet
};

/// An actor of this process that others know.
struct KnownActor {
  caf::strong_actor_ptr actor;
  troupe::detail::InlineGuest* inline_guest = nullptr;  // the actor, when it is one
  bool (*at_rest)(caf::abstract_actor&) = nullptr;      // whether it has looked at all of its mailbox; null: no mailbox
  std::vector<Peer> watchers;                           // are told of its end
  std::map<Peer, Edge> edges;
};

/// The actors of this process that others know. An actor stays in CAF's registry, which keeps it alive, until it ends:
/// references are not counted across processes. Threads: the control lane's.
class KnownActors {
 public:
  /// `ended` is told of each one that ends, when it is not known any more.
  using EndedHere = std::function<void(KnownActor&& actor, caf::actor_id id, const caf::error& reason)>;
  KnownActors(Context& context, EndedHere ended) : context_(context), ended_(std::move(ended)) {}

  /// Makes it known, if it was not.
  KnownActor& expose(const caf::strong_actor_ptr& actor);
  /// The same; most messages come from the sender of the one before.
  void expose_sender(const caf::strong_actor_ptr& sender) {
    if (sender->id() == last_sender_) return;
    expose(sender);
    last_sender_ = sender->id();
  }
  /// One that is known, or is in CAF's registry and so is known from now on; null: it has ended, or never was.
  KnownActor* find(caf::actor_id actor);
  /// Only one that is known already.
  KnownActor* find_known(caf::actor_id actor);
  void add_directory(caf::strong_actor_ptr directory) { actors_[kDirectory].actor = std::move(directory); }
  /// Forgets all. CAF's registry would keep them alive: an actor that it alone holds when the actor system ends is
  /// destroyed too late, without a scheduler.
  void forget_all();
  const std::unordered_map<caf::actor_id, KnownActor>& all() const noexcept { return actors_; }
  std::unordered_map<caf::actor_id, KnownActor>& all() noexcept { return actors_; }

 private:
  void end(caf::actor_id actor, const caf::error& reason);

  Context& context_;
  const EndedHere ended_;
  std::unordered_map<caf::actor_id, KnownActor> actors_;
  caf::actor_id last_sender_ = 0;  // is known
};

}  // namespace troupe::remote
