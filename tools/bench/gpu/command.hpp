#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"

namespace troupe::bench {

/// What `rtbench gpu` measures.
struct GpuCase {
  std::string driver = "libcuda.so.1";
  std::uint32_t ordinal = 0;    // which GPU
  std::string network = "mlp";  // see cases.hpp
  std::vector<std::string> overrides;
  std::uint32_t batch = 0;     // samples; 0: the network's
  std::uint32_t rounds = 5;    // one value for each
  std::uint32_t repeats = 50;  // steps or launches a round
  std::uint32_t mib = 64;      // of a large copy and of an update
  bool list = false;           // only say which GPUs there are
  std::vector<std::string> parts{"device", "steps", "job"};
  std::string dtype = "both";  // or f32, bf16
  double seconds = 2;          // of a job in each turn
  double patience = 120;       // seconds that one wait for a device may take
  bool alone = false;          // nothing is compared with
  std::uint32_t threads = 1;   // of the CPU device
  std::string products;        // as CudaDeviceOptions::products; own: convolutions too
};

/// `rtbench gpu`: a GPU beside the CPU device, in this process: time to enqueue, time until the host sees a point,
/// copies, an update pass, steps of a network in f32 and bf16; the steps also with products by kernels of ours, where a
/// library computes them, and in a job of one rank.
class GpuCommand {
 public:
  explicit GpuCommand(CLI::App& app);
  bool parsed() const { return command_->parsed(); }
  /// Returns the exit code. Throws Error{environment} or Error{unsupported} where no GPU can be used, with what to do.
  int run(Blocking& blocking) const;

 private:
  CLI::App* command_;
  GpuCase case_;
};

}  // namespace troupe::bench
