#pragma once

#include <caf/replies_to.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "actors/exchange/hosted_stripe.hpp"
#include "actors/exchange/messages.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe {

/// From the device's stream to the shard of its process: the stream no longer uses the stripe, and the shard hosts it
/// under this policy until PauseHosting. A barrier of all workers has come before.
struct StartHosting {
  std::shared_ptr<HostedPolicy> policy;
  std::optional<double> elastic_alpha;  // contributions are parameters, and the stripe moves toward them by this factor
  std::uint64_t samples = 0;            // taken by all ranks
  std::uint64_t idle_pushes = 0;        // HostedStripe::start's
  std::uint64_t phase = 0;              // the number of times that hosting has begun, including this one
  Status status;
};
/// From the device's stream to the shard: the stream uses the stripe again when `line` reaches `value`. The shard
/// raises the line to that value when it no longer uses the stripe; until the next StartHosting only the devices use
/// it.
struct PauseHosting {
  TimelineId line;
  std::uint64_t value = 0;
  Status status;
};
/// At the end of a view, to a shard: it accepts no more messages, and answers waiting ones with `why`. Only within a
/// process.
struct EndHosting {
  Status why;
};
/// From the stream to the shard: all work that was enqueued at that time is done, or will not be done.
struct HostingReached {
  Status status;
};

/// The actor that hosts a stripe: workers push contributions and read parameters, its policy decides, its device's
/// stream computes. It only enqueues work, so it may run inline. A few elements are read by calls (StripeRead). A
/// worker counts as gone when it sends LeaveHosting or its process ends. Ends with the stream's error.
using HostedShard =
    ActorOf<caf::replies_to<JoinHosting>::with<HostingJoined>, Takes<LeaveHosting>,
            caf::replies_to<PullRequest>::with<PullReply>, caf::replies_to<PushRequest>::with<PullReply>,
            Takes<CallMessage>, caf::replies_to<AskHosting>::with<HostingReport>, Takes<StartHosting>,
            Takes<PauseHosting>, Takes<EndHosting>, Takes<HostingReached>>;

/// Spawns a shard that hosts nothing yet. `remote`, if not null, outlives it: pushes from other processes are then
/// stored in sinks of the shard instead of the pool. `runs_inline`: on the control lane's thread, so that a message
/// from another process needs no change of threads; requires `remote`.
HostedShard spawn_hosted_shard(caf::actor_system& system, HostedParts parts, RemoteActors* remote = nullptr,
                               bool runs_inline = false);

}  // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::StartHosting, troupe::PauseHosting, troupe::EndHosting, troupe::HostingReached)
