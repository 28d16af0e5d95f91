#pragma once

#include <functional>

#include "actors/loader_actor.hpp"
#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/compute/stream_times.hpp"
#include "runtime/data/load_balancer.hpp"
#include "runtime/data/sample_ledger.hpp"

namespace troupe {

struct BalancerReceivers;

/// Every few steps, reports to rank 0's balancer how the rank's device spent its time, and passes rank 0's decisions
/// about the ledger to the rank's loader. Rank 0's balancer is the ledger's coordinator (LoadBalancer). In jobs of
/// several ranks, on every rank.
using BalancerActor = ActorOf<Takes<Begin>, Takes<Committed>, Takes<JoinLedger>, Takes<RankTimes>, Takes<LedgerUpdate>,
                              Takes<BalancerReceivers>>;
/// Rank 0's balancer, for the others.
using BalancerPeer = ActorOf<Takes<JoinLedger>, Takes<RankTimes>>;
/// The other balancers, for rank 0's.
using LedgerReceiver = ActorOf<Takes<LedgerUpdate>>;

/// The actors that a balancer needs; sent once, before Begin.
struct BalancerReceivers {
  BalancerPeer coordinator;  // empty on rank 0
  LedgerReceiver loader;     // empty if the app brings its samples and divides them itself
};

/// What a balancer needs. The functions are called on its thread and must not block for long.
struct BalancerParts {
  Schedule schedule;
  Rank self;
  LoadBalancerOptions options;
  SampleLedger ledger;                              // the same as the loader's
  std::function<StreamTimes()> times;               // how the device's stream has spent its time so far
  std::function<void(const ShareWindow&)> windows;  // called on rank 0 for each window; may be empty
  TraceRow* trace = nullptr;                        // null: nothing is traced
};

BalancerActor spawn_balancer(caf::actor_system& system, BalancerParts parts);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::BalancerReceivers)
