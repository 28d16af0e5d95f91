#pragma once

#include <array>
#include <caf/actor_system_config.hpp>
#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/caf_compatibility.hpp"
#include "actors/number_bits.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/exchange/policies/staleness_histogram.hpp"

// The messages between workers and the shards that host stripes.
namespace troupe {

/// From worker to shard: the worker takes part, unless it does already, until it leaves or its process ends.
struct JoinHosting {
  std::uint32_t worker = 0;
  std::uint64_t phase = 0;  // of hosting; answered when that has begun
};
/// The answer to JoinHosting.
struct HostingJoined {
  std::uint32_t shard = 0;
  std::uint64_t clock = 0;     // the worker's first clock
  std::uint64_t sequence = 0;  // number of pushes accepted from it before
  std::uint64_t first = 0;     // first element of the stripe in its group
  std::uint64_t count = 0;
};
/// From worker to shard, after its last push: no answer to this worker is open any more.
struct LeaveHosting {
  std::uint32_t worker = 0;
};

/// From worker to shard: reads parameters for the contribution with this clock.
struct PullRequest {
  std::uint32_t worker = 0;
  std::uint64_t clock = 0;
  std::uint64_t barrier = 0;  // HostedRead::barrier
  std::uint64_t into = 0;     // the worker's sink for them (RemoteActors::post_sink); 0: none
};
/// From worker to shard: a contribution, and what the worker reads next.
struct PushRequest {
  std::uint32_t worker = 0;
  std::uint64_t sequence = 0;
  std::uint64_t clock = 0;
  std::uint64_t base_version = 0;
  StepSums sums;
  /// How far it brings the learning rate's schedule, in samples of the order. Not sums.samples, in which samples may
  /// count several times or not at all: each label of a text, those that fill up an epoch, broken images.
  std::uint64_t taken = 0;
  /// The samples in its mean gradient, by which a learning rate with scale = "linear" grows: those that fill up an
  /// epoch too. 0: the rule does not count it as an update.
  std::uint64_t computed = 0;
  Tensor values;
  PullRequest next;  // its clock is the one after the contribution's
};
/// The answer to PullRequest and PushRequest.
struct PullReply {
  std::uint32_t shard = 0;
  std::uint64_t clock = 0;  // of the read
  std::uint64_t version = 0;
  std::uint64_t content = 0;  // see AnswerRead
  StepSums total;             // of the last update that `values` contain
  Tensor values;
  std::uint64_t sink = 0;  // the shard's sink for the worker's next push
};

/// To a shard: asks what it has done so far.
struct AskHosting {};
struct HostingReport {
  std::uint32_t shard = 0;
  std::uint64_t version = 0;
  std::vector<std::uint64_t> version_vector;  // by worker: number of contributions applied
  StalenessHistogram staleness;               // under its present policy
  std::string staleness_unit;
};

TROUPE_MESSAGE_FIELDS(StepSums, NumberBits{x.loss}, x.correct, x.samples, x.stop_requests, x.still_saving,
                      x.bad_gradient, x.bad_loss)
TROUPE_MESSAGE_FIELDS(StalenessHistogram, x.counts, x.updates, x.sum, x.largest)
TROUPE_MESSAGE_FIELDS(JoinHosting, x.worker, x.phase)
TROUPE_MESSAGE_FIELDS(HostingJoined, x.shard, x.clock, x.sequence, x.first, x.count)
TROUPE_MESSAGE_FIELDS(LeaveHosting, x.worker)
TROUPE_MESSAGE_FIELDS(PullRequest, x.worker, x.clock, x.barrier, x.into)
TROUPE_MESSAGE_FIELDS(PushRequest, x.worker, x.sequence, x.clock, x.base_version, x.sums, x.taken, x.computed, x.values,
                      x.next)
TROUPE_MESSAGE_FIELDS(PullReply, x.shard, x.clock, x.version, x.content, x.total, x.values, x.sink)
TROUPE_MESSAGE_FIELDS(AskHosting)
TROUPE_MESSAGE_FIELDS(HostingReport, x.shard, x.version, x.version_vector, x.staleness, x.staleness_unit)

/// Registers these messages; call it in every process, before the actor system is made.
void configure_exchange(caf::actor_system_config& config);

}  // namespace troupe
