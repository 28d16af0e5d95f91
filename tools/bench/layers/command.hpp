#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// What `rtbench layers` and `rtbench gemm` measure.
struct LayersCase {
  std::string network;                                // cases.hpp; empty: square products
  std::string dtype = "f32";                          // or bf16
  std::uint32_t batch = 0;                            // samples; 0: the network's
  std::uint32_t rounds = 5;                           // each a figure
  std::uint32_t threads = 1;                          // of the device
  std::vector<std::uint64_t> sizes{512, 1024, 2048};  // of square products
  bool json = false;
};

/// `rtbench layers`: each layer of a network forward and backward as the CPU device does it, against the best
/// primitives of oneDNN alone, and a whole step against the sum of its layers. `rtbench gemm`: Gflop/s of the products
/// and convolutions of a network, or of square products. Both run in this process, on the calling thread.
class LayersCommand {
 public:
  explicit LayersCommand(CLI::App& app);
  bool parsed() const { return layers_->parsed() || gemm_->parsed(); }
  /// The exit code. Throws Error{unsupported} without a CPU device.
  int run() const;

 private:
  CLI::App* layers_;
  CLI::App* gemm_;
  LayersCase layers_case_, gemm_case_;
};

}  // namespace troupe::bench
