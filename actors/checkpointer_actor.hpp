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

/// Writes this rank's part of every checkpoint that the device copies; rank 0's gathers what the ranks wrote and makes
/// it a checkpoint. It is told and never answers, but for saying when a copy may be overwritten. A save that fails is
/// told to people and given up; the one before it stays.
struct CheckpointerWiring;
using CheckpointerActor =
    ActorOf<Takes<CheckpointerWiring>, Takes<SaveOverdue>, Takes<Committed>, Takes<SnapshotTaken>, Takes<FileWritten>,
            Takes<PartSaved>, Takes<CheckpointPublished>, Takes<TestResult>, Takes<DeviceFinished>>;
using PartReceiver = ActorOf<Takes<PartSaved>>;
using CopyFreed = ActorOf<Takes<SnapshotFree>>;
using SavesReceiver = ActorOf<Takes<CheckpointsDone>>;

/// One piece of this rank's part, where it lies and where its copy does. Copies that follow each other without gaps, at
/// whole pages from the first on, are written without another copy.
struct SnapshotPiece {
  CheckpointPiece piece;
  std::vector<std::uint64_t> extents;
  Memory from;
  Memory copy;
};

/// What a checkpointer works with; `io` and `space` outlive it and what it posts.
struct CheckpointerParts {
  CheckpointStore store;
  IoThreads& io;  // one thread
  AddressSpace& space;
  Rank self;
  std::uint32_t ranks = 1;
  std::vector<SnapshotPiece> pieces;
  Schedule schedule;
  std::uint32_t keep = 3;
  std::chrono::milliseconds save_within{300000};     // then the actor ends with a timeout, and with it the run
  CheckpointManifest manifest;                       // what is the same in all of them
  EpochSoFar epoch;                                  // when the first step begins
  std::function<void(const EpochSoFar&)> retired{};  // told when the view is
  std::function<void(const std::string&)> note;      // what people should know; called on any thread
  TraceRow* trace = nullptr;                         // null: nothing is noted
  TraceRow* io_trace = nullptr;                      // of what `io` does for it
};

/// Whom it talks to; sent to it once, before the first step.
struct CheckpointerWiring {
  CopyFreed device;
  SavesReceiver membership;
  PartReceiver coordinator;  // rank 0's; on rank 0: none
};

CheckpointerActor spawn_checkpointer(caf::actor_system& system, CheckpointerParts parts);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::CheckpointerWiring)
