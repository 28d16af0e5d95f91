#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// What `rtbench layers` and `rtbench gemm` measure.
struct LayersCase {
  std::string network;                                // see cases.hpp; empty: products of square matrices
  std::string dtype = "f32";                          // or bf16
  std::uint32_t batch = 0;                            // samples; 0: the network's
  std::uint32_t rounds = 5;                           // one value for each
  std::uint32_t threads = 1;                          // of the device
  std::vector<std::uint64_t> sizes{512, 1024, 2048};  // of square matrices
  std::string layer;                                  // only layers whose names contain it are measured
  bool json = false;
};

/// `rtbench layers`: the forward and backward pass of each layer of a network on the CPU device, compared with oneDNN's
/// best primitives, and a whole step compared with the sum of its layers. `rtbench gemm`: Gflop/s of the products and
/// convolutions of a network, or of square matrices. Both run in this process, on the calling thread.
class LayersCommand {
 public:
  explicit LayersCommand(CLI::App& app);
  bool parsed() const { return layers_->parsed() || gemm_->parsed(); }
  /// Returns the exit code. Throws Error{unsupported} without a CPU device.
  int run() const;

 private:
  CLI::App* layers_;
  CLI::App* gemm_;
  LayersCase layers_case_, gemm_case_;
};

}  // namespace troupe::bench
