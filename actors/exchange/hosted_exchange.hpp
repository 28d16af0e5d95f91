#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/exchange/hosted_worker_actor.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe {

/// What a rank of a hosted group works on; "whole" is of the group's elements, f32 but for `half`. Separate from the
/// stripes that shards host, which change at any time.
struct HostedMemory {
  Memory gradients;      // whole; the replica writes them
  Memory weights, bf16;  // whole, bf16: this rank's, which its replica reads
  /// Whole: where what is read lands, HostedWorkerParts::landing. With `half`, and of elastic averaging, memory of its
  /// own; else it may be `weights`.
  Memory landing;
  std::array<Memory, kMaxStateSlots> state{};  // whole; of elastic averaging, whose ranks take steps of their own
  Memory held, held_bf16;                      // whole; of elastic averaging: weights put aside
  std::span<const Layout::Entry> no_decay{};   // of elastic averaging's local steps, as StripeMemory::no_decay
  Memory one;                                  // a StepSums, which the exchange fills: of one sample
  /// Whole, bf16: memory of this process alone in which its stripe lies; a meeting brings what the other shards hold
  /// into it. Empty: the shards' stripes are there for all to read.
  Memory common, common_bf16;
};

/// A rank's part in a hosted group; the references outlive the route.
struct HostedExchangeParts {
  AddressSpace& space;
  HostedWorkerActor worker;  // of this rank
  TimelineId line;           // of the worker
  Rank self;
  std::uint32_t ranks = 1;
  HostedMemory memory;
  /// What this process hosts of the group; an empty stripe has no shard.
  HostedShard shard;
  StripeMemory mine;
  std::shared_ptr<UpdateReplay> replay{};  // of an earlier run's shard, whose order this one's is; null: as things come
};

/// Gradients (or parameters) are pushed when the stream has come to them, and the stream waits for the worker's line
/// before it reads parameters again. Totals are a step's of all ranks only with bounded staleness of 0; else this
/// rank's own. The route outlives what it enqueued. Threads: retire may be called by another one than the rest.
std::unique_ptr<HostedRoute> hosted_route(HostedExchangeParts parts);

}  // namespace troupe
