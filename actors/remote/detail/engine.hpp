#pragma once

#include <caf/actor.hpp>
#include <memory>
#include <span>
#include <string>

#include "actors/remote/detail/arrivals.hpp"
#include "actors/remote/detail/backlog.hpp"
#include "actors/remote/detail/call_table.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/credits.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/inbound.hpp"
#include "actors/remote/detail/inline_unit.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/memory_return.hpp"
#include "actors/remote/detail/open_requests.hpp"
#include "actors/remote/detail/outbound.hpp"
#include "actors/remote/detail/proxies.hpp"
#include "actors/remote/detail/silence_watch.hpp"
#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/detail/staging.hpp"
#include "actors/remote/detail/tensor_loans.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe::remote {

/// The remote actors of one process: assembles the parts, drives them from the lanes' hooks, and ends peers and itself.
/// docs/remote-actors.md ("Inside") has the picture. Threads: any, unless stated otherwise; each part has one thread,
/// in most cases the control lane's.
class Engine {
 public:
  Engine(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
         RemoteOptions options);
  ~Engine();

  /// `offered`: bytes of all processes' unhandled messages that the peer accepts. Before the lanes run.
  void add_peer(Peer peer, const caf::node_id& node, std::uint64_t offered);
  std::uint64_t offers() const noexcept { return context_.offers(); }
  void bound(Proxy& proxy, const Window& window, WhenFull when_full);
  caf::actor handle(Peer peer, caf::actor_id actor) { return proxies_.handle(peer, actor); }
  /// `peer` is lost, according to others.
  void lost(Peer peer, const Status& why);
  bool stop(Deadline deadline);
  RemoteCounters counters() const noexcept;
  PeerCounters counters(Peer peer);
  std::string describe(Deadline deadline);

  Arrivals& arrivals() noexcept { return arrivals_; }
  CallTable& calls() noexcept { return calls_; }
  const std::shared_ptr<InlineUnit>& inline_unit() const noexcept { return inline_; }
  const caf::actor& own_directory() const noexcept { return directory_; }
  const caf::actor& window_watcher() const noexcept { return window_watcher_; }
  caf::actor_system& system() const noexcept { return context_.system; }
  Peer self() const noexcept { return context_.self; }

 private:
  class BulkCut;

  // Called on the control lane.
  bool end_round();
  Clock::time_point look_around();
  std::string report();
  void lose(PeerState& peer, const Status& why);
  void finish();

  // Each part has references to earlier ones only, except for three that call each other and are bound before they are
  // constructed: proxies transmit by Outbound, which blocks messages in Backlog, which sends them by Outbound.
  Context context_;
  const std::shared_ptr<SlabPool> landing_pool_;
  const std::shared_ptr<SlabPool> sending_pool_;
  const std::shared_ptr<InlineUnit> inline_;  // also kept by its actors
  MemoryReturn memory_;
  FrameSender frames_;
  KnownActors actors_;
  OpenRequests requests_;
  Staging staging_;
  TensorLoans loans_;
  Backlog backlog_;
  Outbound outbound_;
  Proxies proxies_;
  Credits credits_;
  CallTable calls_;
  Inbound inbound_;
  Arrivals arrivals_;
  SilenceWatch silence_;
  caf::actor directory_;
  caf::actor window_watcher_;
  bool stopped_ = false;  // used by the caller of stop()
};

}  // namespace troupe::remote
