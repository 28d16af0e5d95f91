#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/compute/device.hpp"

namespace troupe {

/// A piece of a step or of an evaluation, with what differs from one to the next beside it.
struct ReplicaCall {
  std::uint64_t piece;  // 0: an evaluation; 1: a step up to its loss; 2 and more: the gradients of a bucket
  const void* object;   // the replica
  const std::byte* batch;
  std::uint32_t rows;
  StepSums* sums;
  std::function<void(const std::byte* batch, std::uint32_t rows, StepSums* sums)> run;
};

/// How a replica that is made of plain functions reaches its device.
struct ReplicaSite {
  std::function<std::byte*(const Memory&)> address;       // for the work that is called
  std::function<void(Stream&, const ReplicaCall&)> call;  // enqueues it; throws for another device's stream
};

/// Computes the graph as the reference device does, on the streams of whatever device `site` is of.
std::unique_ptr<Replica> make_reference_replica(ReplicaSite site, const Graph& graph, const Layout& layout,
                                                const BatchLayout& batch, const std::vector<Bucket>& buckets,
                                                const ReplicaMemory& memory);

}  // namespace troupe
