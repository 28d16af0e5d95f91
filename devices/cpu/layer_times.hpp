#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// The time of one pass of a layer, repeated on the same memory.
struct LayerTime {
  std::string layer;
  std::string kind;
  bool backward = false;
  std::uint64_t flops = 0;      // of its products and convolutions; 0: it has none
  std::vector<double> us;       // of the CPU device, one value per round
  std::vector<double> best_us;  // of oneDNN's best primitives; empty: oneDNN has none for this kind of layer
  std::string best;             // the implementations of these primitives
};

struct StepTimes {
  std::vector<LayerTime> layers;  // in the order of a step
  std::vector<double> us;         // of a whole step forward and backward, with its losses; empty: not measured
};

/// Runs the layers of `graph` on `rows` random samples, each pass alone, and whole steps, alternately, in `rounds`
/// rounds, on the calling thread and `threads` - 1 more. With one thread, what takes longer than 0.2 ms is measured by
/// the thread's CPU time, everything else by the clock. The best primitive is the fastest of all implementations: in
/// plain layouts, in blocks of channels, in the layout that oneDNN prefers, and by Winograd's algorithm if there is
/// one. The best primitives of a pass are run one after another, as often as the pass. The time for packing is counted
/// for the device, but not for the best primitive. Work that the device fuses into
/// a layer is counted for that layer: the activation after it in its forward pass, the slope of the activation before
/// it in its backward pass. With `only`, just the layers whose names contain it are measured, and no whole steps.
/// Afterwards the calling thread flushes denormals to zero. Throws Error{unsupported} if the CPU device cannot run the
/// graph.
StepTimes measure_layers(const Graph& graph, std::uint32_t rows, std::uint32_t threads, std::uint32_t rounds,
                         std::string_view only = {});

}  // namespace troupe
