#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// Writes this rank's part of every checkpoint that the device copies. Rank 0's checkpointer waits for all ranks' parts
/// and publishes the checkpoint. It only receives messages, except that it reports when a copy may be overwritten. A
/// save that fails is noted for people and given up; the previous checkpoint stays.
struct CheckpointerReceivers;
using CheckpointerActor =
    ActorOf<Takes<CheckpointerReceivers>, Takes<SaveOverdue>, Takes<Committed>, Takes<SnapshotTaken>,
            Takes<FileWritten>, Takes<PartSaved>, Takes<CheckpointPublished>, Takes<TestResult>, Takes<DeviceFinished>>;
using PartReceiver = ActorOf<Takes<PartSaved>>;
using CopyFreed = ActorOf<Takes<SnapshotFree>>;
using SavesReceiver = ActorOf<Takes<CheckpointsDone>>;

/// One piece of this rank's part: its memory, and the memory of its copy. If the copies follow each other without gaps,
/// and the first one is aligned to a page, they are written without another copy.
struct SnapshotPiece {
  CheckpointPiece piece;
  std::vector<std::uint64_t> extents;
  Memory from;
  Memory copy;
};

/// What a checkpointer needs; `io` and `space` outlive it and the tasks that it posts.
struct CheckpointerParts {
  CheckpointStore store;
  IoThreads& io;  // has one thread
  AddressSpace& space;
  Rank self;
  std::uint32_t ranks = 1;
  std::vector<SnapshotPiece> pieces;
  Schedule schedule;
  std::uint32_t keep = 3;
  std::chrono::milliseconds save_within{300000};     // then the actor ends with a timeout, and so does the run
  CheckpointManifest manifest;                       // the part that is the same in all of them
  EpochSoFar epoch;                                  // when the first step begins
  std::function<void(const EpochSoFar&)> retired{};  // called when the view is retired
  std::function<void(const std::string&)> note;      // called with messages for people, on any thread
  TraceRow* trace = nullptr;                         // null: nothing is traced
  TraceRow* io_trace = nullptr;                      // of the thread of `io`
};

/// The actors to which it sends; sent to it once, before the first step.
struct CheckpointerReceivers {
  CopyFreed device;
  SavesReceiver membership;
  PartReceiver coordinator;  // of rank 0; on rank 0: empty
};

CheckpointerActor spawn_checkpointer(caf::actor_system& system, CheckpointerParts parts);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::CheckpointerReceivers)
