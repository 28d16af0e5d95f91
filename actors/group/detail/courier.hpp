#pragma once

#include <caf/atom.hpp>
#include <caf/event_based_actor.hpp>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "actors/group/detail/messages.hpp"
#include "actors/group/detail/roster.hpp"

namespace troupe::group {

/// The courier of a process has this name in CAF's registry, where a Mesh finds it.
inline constexpr caf::atom_value kCourier = caf::atom("grpcourier");

/// Passes broadcasts on: to the actors of its process, and to the couriers of some other processes, each of which gets
/// a part of the remaining processes. If a courier fails, its part without its own process is divided again. Each
/// courier remembers the broadcasts that it has received. Therefore a part that a courier had passed on before it died
/// is not delivered twice.
class Courier final : public caf::event_based_actor {
 public:
  Courier(caf::actor_config& config, std::shared_ptr<const Roster> roster);
  const char* name() const override { return "courier"; }
  void on_exit() override;

 private:
  struct Stop {  // a process that must get the broadcast
    Peer peer;
    std::vector<std::uint64_t> actors;
  };
  /// One broadcast, as long as this courier is responsible for a part of it.
  struct Errand {
    Relay head;  // without stops
    std::size_t open = 0;
    std::function<void()> done;
  };

  caf::behavior make_behavior() override;
  void start(const Broadcast& broadcast);
  void relay(Relay& relay);
  void pass_on(const std::shared_ptr<Errand>& errand, std::span<const Stop> stops);
  void send_part(const std::shared_ptr<Errand>& errand, std::vector<Stop> part);
  void finished_part(Errand& errand);
  void deliver_here(const std::vector<std::uint64_t>& actors, const caf::message& what);

  const std::shared_ptr<const Roster> roster_;
  std::uint64_t next_number_ = 0;
  std::set<std::uint64_t> under_way_;                      // numbers of this process's broadcasts that are not finished
  std::map<std::uint32_t, std::set<std::uint64_t>> seen_;  // those of other processes, by origin
  std::map<std::uint64_t, caf::response_promise> owed_;    // answers to relays, by a running number
  std::uint64_t next_owed_ = 0;
};

}  // namespace troupe::group
