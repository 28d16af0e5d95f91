#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// What `rtbench train` measures: samples/s of a whole job, through the same plan and actors as rtrun, loading
/// included. `rtbench products` takes the same case: the matrix products of a training step alone, run by as many
/// processes at once, each on the cores that the plan gives it.
struct TrainCase {
  std::string name = "mlp";            // a network (cases.hpp)
  std::uint32_t np = 2;                // processes
  std::string dtype = "f32";           // or bf16
  double seconds = 6;                  // measured, after warm-up
  std::uint32_t batch = 0;             // samples of a process; 0: the network's
  std::vector<std::string> overrides;  // further settings, as --set
  bool bare = false;                   // the same kernels and arenas, called from a plain loop: no actors, no messages
  bool products = false;               // matrix products alone
};

/// Runs the case: as the launcher of its ranks, or, when the environment says so, as one of them. Rank 0 prints one
/// JSON line with the values of five windows. Returns the exit code.
int run_train(Blocking& blocking, const rtrun::Signals& signals, const TrainCase& what,
              std::vector<std::string> arguments);

/// What `rtbench step` measures: the time of a step of the whole job against that of its matrix products, by turns,
/// `rounds` times. Prints one JSON line with both and the median of their ratios.
int run_step(const TrainCase& what, std::uint32_t rounds);

}  // namespace troupe::bench
