#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// What one pass of a layer takes, over and over on the same memory.
struct LayerTime {
  std::string layer;
  std::string kind;
  bool backward = false;
  std::uint64_t flops = 0;      // of its products and convolutions; 0: it has none
  std::vector<double> us;       // as the CPU device does it, one value a round
  std::vector<double> best_us;  // oneDNN's best primitives for it alone; empty: oneDNN has none for this kind of layer
  std::string best;             // their implementations
};

struct StepTimes {
  std::vector<LayerTime> layers;  // in the order of a step
  std::vector<double> us;         // of a whole step forward and backward, with its losses
};

/// Runs the layers of `graph` on `rows` drawn samples, each pass by itself, and whole steps, `rounds` times by turns,
/// on the calling thread and `threads` - 1 more. The best primitive is the fastest one of all implementations, in plain
/// layouts, in blocks of channels and in the layout that oneDNN prefers, by Winograd's algorithm too where there is
/// one; packing is not counted for it, but is for the device. What the device fuses into a layer belongs to that layer:
/// the activation behind it in its forward pass, the slope of the one before it in its backward pass. Afterwards the
/// calling thread flushes denormals to zero. Throws Error{unsupported} when the CPU device cannot run the graph.
StepTimes measure_layers(const Graph& graph, std::uint32_t rows, std::uint32_t threads, std::uint32_t rounds);

}  // namespace troupe
