#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::detail {

/// The time of one layer on the device.
struct LayerTime {
  double forward_s = 0;
  double backward_s = 0;
};

/// A bucket that is exchanged in a step.
struct ExchangedBucket {
  std::uint64_t elements = 0;
  std::size_t first_layer = 0;  // at this layer the next step's forward pass waits for the parameters
  bool at_end = false;          // passed on after the step's last work instead of when the backward pass has it
};

/// How nodes exchange, from the view of one of them; all are alike.
struct ExchangeLink {
  std::uint32_t nodes = 2;
  double latency_s = 0;
  double bytes_per_second = 1;        // out of a node, and the same into it
  double sent_bytes_per_element = 4;  // of gradients or deltas: 2 in bf16
  double reduce_s_per_element = 0;    // within the node, before sending
  double update_s_per_element = 0;    // for summing and updating an element that the node owns
  std::uint64_t chunk_elements = 1;   // largest part of a bucket that is sent by itself
};

struct ExchangeTimeline {
  double exposed_s = 0;    // how much longer a step takes because of the exchange
  double link_busy_s = 0;  // how long the node sends
};

/// Simulates one step whose parameters are complete at its beginning, and the forward pass of the next step. Gradients
/// are sent chunk by chunk when the backward pass has them, before results; of each kind, those that the next step
/// reads first are sent first. The owners of a chunk update it when all contributions have arrived, in the order of
/// arrival. The next forward pass waits at each layer only for that layer's parameters. `tail_s`: work of the step
/// after its backward pass. Since all nodes do the same, data is assumed to arrive at a node when the node itself has
/// sent the same.
ExchangeTimeline exchange_timeline(std::span<const LayerTime> layers, std::span<const ExchangedBucket> buckets,
                                   const ExchangeLink& link, double tail_s);

/// A bucket that is exchanged by one call.
struct TimedBucket {
  double seconds = 0;
  std::size_t first_layer = 0;  // when the backward pass has passed this layer, the gradients are written
  bool at_end = false;          // exchanged after the backward pass
};

/// How much longer a step takes because of calls that run one at a time, in the order in which the backward pass has
/// the gradients, beside the rest of that pass. The next forward pass waits for all of them.
double exposed_calls_s(std::span<const LayerTime> layers, std::span<const TimedBucket> buckets);

}  // namespace troupe::detail
