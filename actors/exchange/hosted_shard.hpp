#pragma once

#include <caf/replies_to.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "actors/exchange/hosted_tenancy.hpp"
#include "actors/exchange/messages.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe {

/// The device's stream to the shard of its process: it is done with the stripe, which the shard hosts from now on under
/// this policy, until the next such message; a meeting of all workers has come before.
struct StartHosting {
  std::shared_ptr<HostedPolicy> policy;
  std::optional<double> elastic_alpha;  // contributions are parameters, and pull the stripe toward them
  std::uint64_t samples = 0;            // of all ranks, taken
  std::uint64_t phase = 0;              // how often it has begun to host, with this time
  Status status;
};
/// The device's stream to the shard: it takes the stripe back once `line` is at `value`, to which the shard brings it
/// when it has let go; until the next StartHosting the stripe is read by nobody else.
struct RestHosting {
  TimelineId line;
  std::uint64_t value = 0;
  Status status;
};
/// Whoever ends the view, to a shard: nothing more is taken. What waits is answered `why`. Of its
/// process only.
struct EndHosting {
  Status why;
};
/// The stream to the shard: everything enqueued by then is done, or will not be.
struct HostingReached {
  Status status;
};

/// The actor in charge of a stripe that it hosts: workers push contributions and read parameters, its policy decides,
/// its device's stream computes. It only enqueues, so it may run inline. A few elements are read by calls (StripeRead).
/// A worker whose process ends, or that goes without a word, has left. Ends with the stream's error.
using HostedShard = ActorOf<caf::replies_to<JoinHosting>::with<HostingJoined>, Takes<LeaveHosting>,
                            caf::replies_to<ReadPart>::with<PulledPart>, caf::replies_to<PushPart>::with<PulledPart>,
                            Takes<CallMessage>, caf::replies_to<AskHosting>::with<HostingReport>, Takes<StartHosting>,
                            Takes<RestHosting>, Takes<EndHosting>, Takes<HostingReached>>;

/// Spawns one, which hosts nothing yet. `remote`, if any, outlives it: pushes from other processes land in sinks of the
/// shard instead of the pool. `runs_inline`: on the control lane's thread, so that a message from another process costs
/// no change of threads; needs `remote`.
HostedShard spawn_hosted_shard(caf::actor_system& system, HostedParts parts, RemoteActors* remote = nullptr,
                               bool runs_inline = false);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::StartHosting)
TROUPE_LOCAL_MESSAGE(troupe::RestHosting)
TROUPE_LOCAL_MESSAGE(troupe::EndHosting)
TROUPE_LOCAL_MESSAGE(troupe::HostingReached)
