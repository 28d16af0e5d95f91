#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::detail {

/// What one layer takes on the device.
struct LayerTime {
  double forward_s = 0;
  double backward_s = 0;
};

/// A bucket that is exchanged in a step.
struct ExchangedBucket {
  std::uint64_t elements = 0;
  std::size_t first_layer = 0;  // the next step's forward pass waits here for its parameters
  bool at_end = false;          // handed over behind the step's last work, not as soon as the backward pass has it
};

/// How nodes exchange, seen from one of them; all are alike.
struct ExchangeLink {
  std::uint32_t nodes = 2;
  double latency_s = 0;
  double bytes_per_second = 1;        // that leave a node, and as many that come
  double sent_bytes_per_element = 4;  // of gradients or deltas: 2 in bf16
  double reduce_s_per_element = 0;    // within the node, before they leave
  double update_s_per_element = 0;    // sums and update of an element that the node owns
  std::uint64_t chunk_elements = 1;   // of a bucket, at most, that travel by themselves
};

struct ExchangeTimeline {
  double exposed_s = 0;    // by which a step is longer than without the exchange
  double link_busy_s = 0;  // in which the node sends
};

/// One step whose parameters are there at its beginning, and the forward pass of the next one, played through in time:
/// gradients leave chunk by chunk when the backward pass has them, before results, and of each kind those first that
/// the next step reads first; the tenants of a chunk update it when all contributions have come, in the order in which
/// that happens; the next forward pass waits at each layer for that layer's parameters alone. `tail_s`: work of the
/// step behind its backward pass. What arrives at a node is taken to come when the same has left it, as all nodes do
/// the same.
ExchangeTimeline exchange_timeline(std::span<const LayerTime> layers, std::span<const ExchangedBucket> buckets,
                                   const ExchangeLink& link, double tail_s);

}  // namespace troupe::detail
