#pragma once

#include <chrono>
#include <vector>

#include "actors/exchange/hosted_shard.hpp"
#include "actors/point_messenger.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

struct Contribution {
  Memory sums;         // a StepSums, read: of the contribution
  Memory total;        // a StepSums, written before the line is raised: of all contributions in that update; empty: not
  Memory values;       // [group] f32, read: gradients, or parameters of elastic averaging; empty: the rank only meets
  bool meets = false;  // what is read next, all ranks read when all of them have come here
};
/// The device's stream to the worker: what this rank contributes in its round `round` (counted from 0) may be read.
struct ContributionReady {
  std::uint64_t round = 0;
  Contribution contribution;
  Status status;
};
/// Whoever found them, to the worker: the group's shards, in the order of their numbers. Before BeginHosting.
struct KnowShards {
  std::vector<HostedShard> shards;
};
/// The device's stream to the worker: take part in the shards' hosting `phase` (StartHosting).
struct BeginHosting {
  std::uint64_t phase = 0;
  Status status;
};
/// Membership to the worker: no round is contributed any more; announce the leave once what is under way is read.
struct LeaveShards {
  Status status;  // for the worker itself
};
/// The worker to itself, every deadline.
struct LookForProgress {};

/// What a rank's worker of one group works with; all outlive it, and the points that wait for its line.
struct HostedWorkerParts {
  Rank self;
  /// A stream of the rank's device for this alone: what comes by reference is copied on it.
  Stream& side;
  AddressSpace& space;
  /// Raised by 1 when what a round made is read, which is what the next one computes with, and when the first
  /// parameters of a phase are. Poisoned when that will not be. Whoever waits for it must have marked what it
  /// contributed before, and may then overwrite it.
  TimelineId line;
  Memory landing;                  // [group] f32, written: the parameters, or the center
  RemoteActors* remote = nullptr;  // lays out the landing for what is sent
  /// Of an answer; a read for which the policy has it wait may take longer as long as the others contribute.
  std::chrono::milliseconds deadline{30000};
  TraceRow* trace = nullptr;  // null: nothing is noted
};

/// A rank's side of a hosted group: pushes when the device's stream has come to the contribution, reads, and raises a
/// line that the device's stream waits for. So the device actor enqueues ahead as ever. Ends with an error that names
/// the shard, or the ranks that have not come, when an answer is overdue, its line poisoned with the same.
using HostedWorkerActor = ActorOf<Takes<KnowShards>, Takes<BeginHosting>, Takes<ContributionReady>, Takes<LeaveShards>,
                                  Takes<LookForProgress>>;

/// In each phase it starts at the shards' clock, which must be the same at all of them.
HostedWorkerActor spawn_hosted_worker(caf::actor_system& system, HostedWorkerParts parts);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::ContributionReady)
TROUPE_LOCAL_MESSAGE(troupe::KnowShards)
TROUPE_LOCAL_MESSAGE(troupe::BeginHosting)
TROUPE_LOCAL_MESSAGE(troupe::LeaveShards)
TROUPE_LOCAL_MESSAGE(troupe::LookForProgress)
