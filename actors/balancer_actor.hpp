#pragma once

#include <functional>

#include "actors/loader_actor.hpp"
#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/compute/stream_times.hpp"
#include "runtime/data/ledger.hpp"
#include "runtime/data/shares.hpp"

namespace troupe {

struct BalancerWiring;

/// Tells rank 0's, some steps at a time, what the rank's device spent its time on, and the rank's loader what rank 0's
/// says of the ledger. Rank 0's is the ledger's coordinator (Shares). In jobs of several ranks, on every rank.
using BalancerActor = ActorOf<Takes<Begin>, Takes<Committed>, Takes<JoinLedger>, Takes<RankTimes>, Takes<LedgerNews>,
                              Takes<BalancerWiring>>;
/// How the others see rank 0's.
using BalancerPeer = ActorOf<Takes<JoinLedger>, Takes<RankTimes>>;
/// How rank 0's sees the others.
using LedgerReceiver = ActorOf<Takes<LedgerNews>>;

/// Whom a balancer works with; comes once, before Begin.
struct BalancerWiring {
  BalancerPeer coordinator;  // none on rank 0
  LedgerReceiver loader;     // none where the app brings its samples, which then are its own to share out
};

/// What a balancer works with; functions are called on its thread and must not block for long.
struct BalancerParts {
  Schedule schedule;
  Rank self;
  SharesOptions options;
  Ledger ledger;                                    // as the loader's
  std::function<StreamTimes()> times;               // what the device's stream has spent so far
  std::function<void(const ShareWindow&)> windows;  // rank 0: told of each; may be empty
  TraceRow* trace = nullptr;                        // null: nothing is noted
};

BalancerActor spawn_balancer(caf::actor_system& system, BalancerParts parts);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::BalancerWiring)
