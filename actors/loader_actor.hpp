#pragma once

#include "actors/messages.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/data/sample_ledger.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/source.hpp"
#include "runtime/memory/lease.hpp"

namespace troupe {

/// Fills free slots with the rank's part of each step's samples, in order, and sends them to the device; after a step
/// that is evaluated, with the rank's part of the test set. All free slots are filled at the same time. Without a free
/// slot it sends nothing, and it fills no step beyond the ledger's horizon. Its position is one step number.
using LoaderActor = ActorOf<Takes<SlotFree>, Takes<BatchFilled>, Takes<LedgerUpdate>>;
using BatchReceiver = ActorOf<Takes<BatchLease>>;

/// What a loader needs; all of it outlives the loader.
struct LoaderParts {
  LeasePool& pool;
  const Source& train;
  const Source& test;
  const BatchLayout& batch;
  Schedule schedule;
  Rank rank;
  IoThreads& threads;  // for the sources; closed after the loader has ended
  std::uint64_t seed = 0;
  SampleLedger ledger{schedule};  // as far as it is known when the job begins
  TraceRow* trace = nullptr;      // null: nothing is traced
};

LoaderActor spawn_loader(caf::actor_system& system, const LoaderParts& parts, BatchReceiver device);

}  // namespace troupe
