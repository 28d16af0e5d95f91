#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/device.hpp"

namespace troupe {

/// How a replica that is made of plain functions reaches its device.
struct ReplicaSite {
  std::function<std::byte*(const Memory&)> address;                    // for the work that is called
  std::function<void(Stream&, std::function<void()> work)> call;       // enqueues; throws for another device's stream
};

/// Computes the graph as the reference device does, on the streams of whatever device `site` is of.
std::unique_ptr<Replica> make_reference_replica(ReplicaSite site, const Graph& graph, const Layout& layout,
                                                const BatchLayout& batch, const std::vector<Bucket>& buckets,
                                                const ReplicaMemory& memory);

}  // namespace troupe
