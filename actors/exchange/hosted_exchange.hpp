#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "actors/exchange/hosted_worker_actor.hpp"
#include "runtime/exchange/exchange.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe {

/// The memory of a rank in a hosted group; "whole" means all of the group's elements, f32 unless stated otherwise. It
/// is separate from the stripes that shards host, which change at any time.
struct HostedMemory {
  Memory gradients;      // whole; the replica writes them
  Memory weights, half;  // whole, bf16: of this rank, read by its replica
  /// Whole: where parameters that are read arrive, HostedWorkerParts::landing. With bf16, and under elastic averaging,
  /// it is separate memory; otherwise it may be `weights`.
  Memory landing;
  std::array<Memory, kMaxStateSlots> state{};  // whole; under elastic averaging, in which ranks take their own steps
  Memory held, held_half;                      // whole; under elastic averaging: weights that are set aside
  std::span<const Layout::Entry> no_decay{};   // for elastic averaging's local steps, as StripeMemory::no_decay
  Memory one;                                  // a StepSums with one sample, which the exchange fills in
  /// Whole, bf16: memory of this process alone that contains its stripe. After a barrier the other shards' stripes are
  /// copied into it. Empty: all ranks can read the shards' stripes directly.
  Memory common, common_half;
};

/// A rank's part in a hosted group; the references outlive the exchange.
struct HostedExchangeParts {
  AddressSpace& space;
  HostedWorkerActor worker;  // of this rank
  TimelineId line;           // of the worker
  Rank self;
  std::uint32_t ranks = 1;
  HostedMemory memory;
  /// The shard of this process; empty if its stripe is empty.
  HostedShard shard;
  StripeMemory mine;
  std::shared_ptr<UpdateReplay> replay{};  // of an earlier shard's log, to repeat; null: order of arrival
};

/// Gradients (or parameters) are pushed when the stream reaches them, and the stream waits for the worker's line before
/// it reads parameters again. A step's totals are of all ranks only under bounded staleness of 0; otherwise they are
/// this rank's own. The exchange outlives the work that it enqueued. Threads: retire() may be called by a different one
/// than the rest.
std::unique_ptr<HostedExchange> hosted_exchange(HostedExchangeParts parts);

}  // namespace troupe
