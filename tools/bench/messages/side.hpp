#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <memory>
#include <string>

#include "actors/remote/remote_actors.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "tools/bench/messages/end.hpp"
#include "tools/bench/messages/stage.hpp"

namespace troupe::bench {

/// Remote actors as a program puts them together, with one peer. Threads: main.
class Side {
 public:
  /// Both ends make theirs at once. Throws what Line, RemoteActors and the transport throw.
  Side(Blocking& blocking, const EndCase& what, Line& line);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Where the measured actors run.
  Stage stage() { return {system_, what_.impl == "scheduled" ? nullptr : remote_.get()}; }
  template <class Handle>
  void publish(const std::string& name, const Handle& actor) {
    remote_->publish(name, actor);
  }
  caf::actor find(Blocking& blocking, const std::string& name, Clock::duration patience) {
    return remote_->resolve(blocking, there_, name, Deadline::after(patience));
  }
  /// All of the first arena, filled; equal at both ends.
  Tensor tensor();
  bool same(const Tensor& one, const Tensor& other) const;

  AddressSpace& space() noexcept { return space_; }
  Arena& arena() noexcept { return *arena_; }
  /// Only in a test of endurance: memory that the other end has mapped.
  Arena& lent() noexcept { return *lent_; }
  caf::actor_system& system() noexcept { return system_; }
  RemoteActors& remote() const noexcept { return *remote_; }
  PeerCounters counters() const { return remote_->counters(there_); }

 private:
  struct Config final : caf::actor_system_config {
    Config();
  };
  void share_arena(Blocking& blocking, Line& line);

  const EndCase what_;
  const Peer self_;
  const Peer there_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Arena> lent_;  // the same, another, or none
  Config config_;
  caf::actor_system system_;
  std::unique_ptr<RemoteActors> remote_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<LaneLoop> control_;
  std::unique_ptr<LaneLoop> bulk_;
};

}  // namespace troupe::bench
