#pragma once

#include <caf/actor_control_block.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/body_assembler.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/request_list.hpp"
#include "actors/remote/inline_executor.hpp"

namespace troupe::remote {

/// A frame that arrived, with everything that belongs to it; the bytes are valid only during the call.
struct Arrival {
  std::span<const std::byte> head;
  Memory payload;
  std::shared_ptr<const void> payload_owner;
  bool refused = false;   // there was no memory for its payload
  ArrivedBody body = {};  // a body that came in pieces
};

/// A message that waits for earlier ones to the same actor, with a copy of its head.
struct HeldMessage {
  std::vector<std::byte> head;
  Memory payload;
  std::shared_ptr<const void> payload_owner;
  bool refused = false;
  ArrivedBody body;
};

/// The messages of one process to one actor.
struct Edge {
  std::uint32_t next = 0;  // the number of the next message to deliver
  std::unordered_map<std::uint32_t, HeldMessage> held;
  std::shared_ptr<EdgeIntake> intake;  // null: no message was counted yet
};

/// An actor of this process that others know.
struct KnownActor {
  caf::strong_actor_ptr actor;
  troupe::detail::InlineHandler* inline_handler = nullptr;  // the actor, if it is inline
  bool (*at_rest)(caf::abstract_actor&) = nullptr;          // whether it has looked at its whole mailbox; null: none
  std::vector<Peer> watchers;                               // are told of its end
  std::map<Peer, Edge> edges;
  RequestsOf requests;    // its own that are open
  bool is_asked = false;  // which of them it does not wait for any more
};

/// The actors of this process that others know. An actor stays in CAF's registry, which keeps it alive, until it ends,
/// since references are not counted across processes. Threads: the control lane's.
class KnownActors {
 public:
  /// Called for each of these actors that ends, after it was forgotten here.
  using EndedHere = std::function<void(KnownActor&& actor, caf::actor_id id, const caf::error& reason)>;
  KnownActors(Context& context, EndedHere ended) : context_(context), ended_(std::move(ended)) {}

  /// Makes an actor known, if it is not already.
  KnownActor& make_known(const caf::strong_actor_ptr& actor);
  /// The same; most messages have the same sender as the previous one.
  KnownActor& make_sender_known(const caf::strong_actor_ptr& sender) {
    if (last_sender_ == nullptr || last_sender_->actor != sender) last_sender_ = &make_known(sender);
    return *last_sender_;
  }
  /// An actor that is known, or that is in CAF's registry and becomes known by this call; null: it has ended, or never
  /// existed. Most messages have the same receiver as the previous one.
  KnownActor* find(caf::actor_id actor) {
    if (last_found_ == nullptr || last_found_->first != actor) look_up(actor);
    return last_found_ == nullptr ? nullptr : &last_found_->second;
  }
  /// Only an actor that is known already.
  KnownActor* find_known(caf::actor_id actor);
  void add_directory(caf::strong_actor_ptr directory) { actors_[kDirectory].actor = std::move(directory); }
  /// Forgets all of them. Otherwise CAF's registry would keep them alive: an actor with no other reference would be
  /// destroyed when the actor system ends, too late, without a scheduler.
  void forget_all();
  const std::unordered_map<caf::actor_id, KnownActor>& all() const noexcept { return actors_; }
  std::unordered_map<caf::actor_id, KnownActor>& all() noexcept { return actors_; }

 private:
  using Actors = std::unordered_map<caf::actor_id, KnownActor>;
  void end(caf::actor_id actor, const caf::error& reason);
  void look_up(caf::actor_id actor);

  Context& context_;
  const EndedHere ended_;
  Actors actors_;
  // In elements of actors_, which do not move until they are removed.
  KnownActor* last_sender_ = nullptr;
  Actors::value_type* last_found_ = nullptr;
};

}  // namespace troupe::remote
