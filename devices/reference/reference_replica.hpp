#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/compute/device.hpp"

namespace troupe {

/// A piece of a step or of an evaluation, with the values that change from one to the next.
struct ReplicaCall {
  std::uint64_t piece;  // 0: an evaluation; 1: a step up to its loss; 2 and more: the gradients of a bucket
  const void* object;   // the replica
  const std::byte* batch;
  std::uint32_t rows;
  StepSums* sums;
  std::function<void(const std::byte* batch, std::uint32_t rows, StepSums* sums)> run;
};

/// How a replica made of plain functions uses its device.
struct ReplicaContext {
  std::function<std::byte*(const Memory&)> address;       // for the work that is called
  std::function<void(Stream&, const ReplicaCall&)> call;  // enqueues it; throws for another device's stream
};

/// Computes the graph as the reference device does, on streams of the device that `context` belongs to.
std::unique_ptr<Replica> make_reference_replica(ReplicaContext context, const Graph& graph, const Layout& layout,
                                                const BatchLayout& batch, const std::vector<Bucket>& buckets,
                                                const ReplicaMemory& memory);

}  // namespace troupe
