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

/// The processes of the group, and the group's own actors in each of them. Shared by the group and these actors, which
/// may run for a moment after the group has ended. Handles are made only on demand, since each costs a message to its
/// process. Threads: any, after enroll().
class PeerTable {
 public:
  struct Entry {
    caf::node_id node;
    caf::actor_id broadcaster = 0;
    caf::actor_id agent = 0;
    std::string host;
  };

  using Lost = std::function<void(Peer peer, const Status& why)>;

  PeerTable(Peer self, std::function<void(std::string_view)> dropped) : self_(self), dropped_(std::move(dropped)) {}
  /// Call it before anything else. Entries by peer.
  void enroll(RemoteActors& remote, std::vector<Entry> entries);
  /// This process stops together with the others: from now on silent peers are only listed in the report.
  void begin_shutdown() noexcept { shutting_down_ = true; }
  bool shutting_down() const noexcept { return shutting_down_; }
  /// The group has ended: from now on no peer is reachable.
  void close();

  Peer self() const noexcept { return self_; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  std::optional<Peer> peer_of(const caf::node_id& node) const;
  /// "peer 1 (host a)"
  std::string describe(Peer peer) const;
  /// For another process; empty after the group has ended.
  caf::actor broadcaster(Peer peer) const;
  caf::actor agent(Peer peer) const;
  /// All messages of a peer that leaves have arrived: requests to it without an answer get an error.
  void report_left(Peer peer) const;
  /// From now on the end of that peer is not a loss.
  void report_leaving(Peer peer) const;
  /// Calls `lost` for every lost peer, including those lost before this call, until remove_listener() with the returned
  /// number. Calls never overlap, and there are none after remove_listener() has returned.
  std::uint64_t add_listener(Lost lost);
  void remove_listener(std::uint64_t listener);
  /// Tells the listeners that a peer was lost: once, and not if the peer is leaving.
  void report_lost(Peer peer, const Status& why) const;
  /// The same if another process reported it: from now on nothing is expected from that peer.
  void report_silent(Peer peer, const Status& why) const;
  /// Reports a message that will not be delivered.
  void drop(const std::string& what) const;

 private:
  caf::actor handle(Peer peer, caf::actor_id actor) const;

  const Peer self_;
  std::atomic<bool> shutting_down_{false};
  std::vector<Entry> entries_;  // not changed after enroll(), like the next member
  std::unordered_map<caf::node_id, Peer> peers_;
  // Guards the listeners, and is held while they run, which never happens after close(); locked before the other mutex.
  mutable std::recursive_mutex notifying_;
  mutable std::mutex mutex_;  // guards remote_ and ended_, and serializes calls of dropped_
  RemoteActors* remote_ = nullptr;
  mutable std::set<std::uint32_t> ended_;                // peers that are lost, or leave
  mutable std::vector<std::pair<Peer, Status>> losses_;  // those that listeners were told
  std::map<std::uint64_t, Lost> listeners_;
  std::uint64_t listeners_ever_ = 0;
  const std::function<void(std::string_view)> dropped_;
};

}  // namespace troupe::group
