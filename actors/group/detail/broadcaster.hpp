#pragma once

#include <caf/atom.hpp>
#include <caf/event_based_actor.hpp>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "actors/group/detail/messages.hpp"
#include "actors/group/detail/peer_table.hpp"

namespace troupe::group {

/// The broadcaster of a process has this name in CAF's registry, where a Mesh finds it.
inline constexpr caf::atom_value kBroadcaster = caf::atom("grpbcast");

/// Passes broadcasts on: to the actors of its process, and to the broadcasters of some other processes, each of which
/// gets a part of the remaining processes. If a broadcaster fails, its part without its own process is divided again.
/// Each broadcaster remembers the broadcasts that it has received. Therefore a part that a broadcaster had passed on
/// before it died is not delivered twice.
class Broadcaster final : public caf::event_based_actor {
 public:
  Broadcaster(caf::actor_config& config, std::shared_ptr<const PeerTable> peer_table);
  const char* name() const override { return "broadcaster"; }
  void on_exit() override;

 private:
  struct Target {  // a process that must get the broadcast
    Peer peer;
    std::vector<std::uint64_t> actors;
  };
  /// One broadcast, as long as this broadcaster is responsible for a part of it.
  struct PendingBroadcast {
    Relay head;  // without targets
    std::size_t open = 0;
    std::function<void()> done;
  };

  caf::behavior make_behavior() override;
  void start(const Broadcast& broadcast);
  void relay(Relay& relay);
  void pass_on(const std::shared_ptr<PendingBroadcast>& pending, std::span<const Target> targets);
  void send_part(const std::shared_ptr<PendingBroadcast>& pending, std::vector<Target> part);
  void finished_part(PendingBroadcast& pending);
  void deliver_here(const std::vector<std::uint64_t>& actors, const caf::message& what);

  const std::shared_ptr<const PeerTable> peer_table_;
  std::uint64_t next_number_ = 0;
  std::set<std::uint64_t> in_progress_;                    // numbers of this process's broadcasts that are not finished
  std::map<std::uint32_t, std::set<std::uint64_t>> seen_;  // those of other processes, by origin
  std::map<std::uint64_t, caf::response_promise> owed_;    // answers to relays, by a running number
  std::uint64_t next_owed_ = 0;
};

}  // namespace troupe::group
