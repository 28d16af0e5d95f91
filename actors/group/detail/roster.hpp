#pragma once

#include <atomic>
#include <caf/actor.hpp>
#include <caf/node_id.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/remote/remote_actors.hpp"
#include "runtime/base/ids.hpp"

namespace troupe::group {

/// The processes of the group, and the actors that serve the group in each of them. Shared by the group and its actors,
/// which may run for a moment after the group has ended. Handles are made only when somebody asks for them, since each
/// costs a message to its process. Threads: any, once enrolled.
class Roster {
 public:
  struct Entry {
    caf::node_id node;
    caf::actor_id courier = 0;
    caf::actor_id steward = 0;
    std::string host;
  };

  using Lost = std::function<void(Peer peer, const Status& why)>;

  Roster(Peer self, std::function<void(std::string_view)> dropped) : self_(self), dropped_(std::move(dropped)) {}
  /// Before anybody else asks. Entries by peer.
  void enroll(RemoteActors& remote, std::vector<Entry> entries);
  /// This process comes to its end with the others: from now on silence is only the report's to tell.
  void begin_parting() noexcept { parting_ = true; }
  bool parting() const noexcept { return parting_; }
  /// The end of the group: from now on nobody is reachable.
  void close();

  Peer self() const noexcept { return self_; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  std::optional<Peer> peer_of(const caf::node_id& node) const;
  /// "peer 1 (host a)"
  std::string describe(Peer peer) const;
  /// Of another process; empty when the group has ended.
  caf::actor courier(Peer peer) const;
  caf::actor steward(Peer peer) const;
  /// All messages of a peer that leaves have arrived: whoever still waits for an answer of it gets an error.
  void has_left(Peer peer) const;
  /// From now on its end is no loss.
  void is_leaving(Peer peer) const;
  /// Tells `lost` of every peer that is lost, those before this call included, until it is forgotten by its number;
  /// never more than one at a time, and not any more once forget() has returned.
  std::uint64_t listen(Lost lost);
  void forget(std::uint64_t listener);
  /// Tells whoever listens that a peer was lost: once, and not of one that leaves.
  void is_lost(Peer peer, const Status& why) const;
  /// The same when another process told of it: from now on nothing is expected of that peer.
  void is_silent(Peer peer, const Status& why) const;
  /// Reports a message that will not be delivered.
  void drop(const std::string& what) const;

 private:
  caf::actor handle(Peer peer, caf::actor_id actor) const;

  const Peer self_;
  std::atomic<bool> parting_{false};
  std::vector<Entry> entries_;  // fixed once enrolled, like the next
  std::unordered_map<caf::node_id, Peer> peers_;
  // Held while listeners run, which is never after close(), and guards them; taken before the other.
  mutable std::recursive_mutex telling_;
  mutable std::mutex mutex_;  // guards remote_ and ended_, and dropped_ from being called by two at once
  RemoteActors* remote_ = nullptr;
  mutable std::set<std::uint32_t> ended_;                // peers that are lost, or leave
  mutable std::vector<std::pair<Peer, Status>> losses_;  // that were told
  std::map<std::uint64_t, Lost> listeners_;
  std::uint64_t listeners_ever_ = 0;
  const std::function<void(std::string_view)> dropped_;
};

}  // namespace troupe::group
