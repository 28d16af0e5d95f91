#pragma once

#include <memory>
#include <optional>

#include "actors/exchange/hosted_worker_actor.hpp"
#include "runtime/exchange.hpp"
#include "runtime/policies/policy.hpp"

namespace troupe {

/// What a rank of a hosted group works on; "whole" is of the group's elements, f32 but for `half`. Separate from the
/// stripes that shards host, which change at any time.
struct HostedMemory {
  Memory gradients;      // whole; the replica writes them
  Memory weights, half;  // whole, bf16: this rank's, which its replica reads
  /// Whole: where what is read lands, HostedWorkerParts::landing. With `half`, and of elastic averaging, memory of its
  /// own; else it may be `weights`.
  Memory landing;
  std::array<Memory, kMaxStateSlots> state{};  // whole; of elastic averaging, whose ranks take steps of their own
  Memory held, held_half;                      // whole; of elastic averaging: weights put aside
  std::span<const Layout::Entry> no_decay{};   // of elastic averaging's local steps, as StripeMemory::no_decay
  Memory one;                                  // a StepSums, which the exchange fills: of one sample
};

/// A rank's part in a hosted group; the references outlive the exchange.
struct HostedExchangeParts {
  AddressSpace& space;
  HostedWorkerActor worker;  // of this rank: its contribution is `gradients`, of elastic averaging `weights`
  TimelineId line;           // of the worker
  PolicySettings settings;
  std::uint32_t ranks = 1;
  Rule rule;  // of elastic averaging: the local steps'
  HostedMemory memory;
  std::vector<Bucket> buckets;  // of the group
  /// What this process hosts of the group, retired with the exchange; an empty stripe has no shard.
  std::vector<std::pair<HostedShard, StripeMemory>> hosted;
  std::uint64_t updates = 0;  // that the rule has made before
};

/// The hosted route: gradients (or parameters) are pushed when the stream has come to them, and the stream waits for
/// the worker's line before it reads parameters again. Sums reach other ranks only with bounded staleness of 0; else a
/// step's total is this rank's own. retire() tells the shards that it was given to end; what they held is whole once
/// they have answered an EndHosting. The exchange outlives what it enqueued. Threads: retire may be called by another
/// one than the rest.
std::unique_ptr<Exchange> hosted_exchange(HostedExchangeParts parts);

}  // namespace troupe
