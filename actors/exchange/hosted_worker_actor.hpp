#pragma once

#include <chrono>
#include <vector>

#include "actors/exchange/hosted_shard.hpp"
#include "actors/point_messenger.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

struct Contribution {
  Memory sums;    // a StepSums of the contribution, read
  Memory total;   // a StepSums of all contributions in the update, written before the line is raised; may be empty
  Memory values;  // [group] f32, read: gradients, or parameters of elastic averaging; empty: only a barrier
  bool is_barrier = false;                // the next read is a barrier: it is answered when all ranks have reached it
  std::uint64_t taken = 0, computed = 0;  // PushRequest's
};
/// From the device's stream to the worker: this rank's contribution to its round `round` (counted from 0) may be read.
struct ContributionReady {
  std::uint64_t round = 0;
  Contribution contribution;
  Status status;
};
/// To the worker: the group's shards, in the order of their numbers. Before BeginHosting.
struct SetShards {
  std::vector<HostedShard> shards;
};
/// From the device's stream to the worker: take part in the shards' hosting phase `phase` (StartHosting).
struct BeginHosting {
  std::uint64_t phase = 0;
  Status status;
};
/// From Membership to the worker: no round follows; leave the shards when the reads in progress have ended.
struct LeaveShards {
  Status status;  // used within the worker
};
/// From the worker to itself, at every deadline.
struct CheckProgress {};

/// What a rank's worker of one group needs; all of it outlives the worker, and the points that wait for its line.
struct HostedWorkerParts {
  Rank self;
  /// A stream of the rank's device, used only here: copies parameters that arrive by reference.
  Stream& side;
  AddressSpace& space;
  /// Raised by 1 when the parameters of a round, with which the next one computes, have been read, and when the first
  /// parameters of a phase have been. Poisoned if that will not happen. A reader that waits for it must first have
  /// marked its contribution, and may then overwrite it.
  TimelineId line;
  Memory landing;                  // [group] f32, written: the parameters, or the center
  RemoteActors* remote = nullptr;  // posts the landing for parameters that are sent
  /// For an answer; a read that waits by its policy may take longer, as long as the others contribute.
  std::chrono::milliseconds deadline{30000};
  TraceRow* trace = nullptr;  // null: nothing is traced
};

/// A rank's part of a hosted group: pushes when the device's stream reaches the contribution, reads, and raises a line
/// for which the device's stream waits. Thus the device actor can enqueue ahead as always. If an answer is late, it
/// ends with an error that names the shard, or the ranks that are missing, and poisons its line with the same error.
using HostedWorkerActor =
    ActorOf<Takes<SetShards>, Takes<BeginHosting>, Takes<ContributionReady>, Takes<LeaveShards>, Takes<CheckProgress>>;

/// In each phase it starts at the shards' clock, which must be the same at all shards.
HostedWorkerActor spawn_hosted_worker(caf::actor_system& system, HostedWorkerParts parts);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::ContributionReady, troupe::SetShards, troupe::BeginHosting, troupe::LeaveShards,
                     troupe::CheckProgress)
