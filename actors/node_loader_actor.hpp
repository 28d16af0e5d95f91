#pragma once

#include <vector>

#include "actors/messages.hpp"
#include "runtime/data/sample_ledger.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/source.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// One loader for several ranks. It fills the slots that they lend it with their parts of each step's samples, after a
/// step that is evaluated also with their parts of the test set, each rank's in order, and answers with SlotFilled.
/// Every rank has its own slots, so no rank waits for another. It fills no step beyond the ledger's horizon.
using NodeLoaderActor = ActorOf<Takes<SlotLent>, Takes<SlotFree>, Takes<BatchFilled>, Takes<LedgerUpdate>>;

/// What a node's loader needs; all of it outlives the loader. The ranks' pools are in memory that `space` has mapped.
struct NodeLoaderParts {
  AddressSpace& space;
  const Source& train;
  const Source& test;
  const BatchLayout& batch;
  Schedule schedule;
  std::vector<Rank> ranks;
  IoThreads& threads;  // for the sources; closed after the loader has ended
  std::uint64_t seed = 0;
  SampleLedger ledger{schedule};  // as far as it is known when the job begins
  TraceRow* trace = nullptr;      // null: nothing is traced
};

NodeLoaderActor spawn_node_loader(caf::actor_system& system, const NodeLoaderParts& parts);

}  // namespace troupe
