#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/bench/bare.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// The case of `rtbench train`, which measures samples/s of a whole job, with the same plan and actors as rtrun,
/// including loading. `rtbench products` has the same case: only the matrix products of a training step, run by as many
/// processes at the same time, each on the cores that the plan gives it.
struct TrainCase {
  std::string name = "mlp";            // of a network (cases.hpp)
  std::uint32_t np = 2;                // processes
  std::string dtype = "f32";           // or bf16
  double seconds = 6;                  // measured, after the warm-up
  std::uint32_t batch = 0;             // samples of a process; 0: the network's default
  std::vector<std::string> overrides;  // further settings, as --set
  bool bare = false;                   // the same kernels and arenas in a plain loop: no actors, no messages
  bool products = false;               // only matrix products
};

/// Runs the case: as the launcher of its ranks, or as one of them if the environment says so. Rank 0 prints one JSON
/// line with the values of five windows. Returns the exit code.
int run_train(Blocking& blocking, const rtrun::Signals& signals, const TrainCase& what,
              std::vector<std::string> arguments);

/// A job of one rank in this process, for what.seconds; the other counts and flags of the case are not used.
StepClock run_alone(Blocking& blocking, const TrainCase& what);

/// `rtbench step`: measures the time of a step of the whole job and of its matrix products, alternately, `rounds`
/// times. Prints one JSON line with both and the median of their ratios.
int run_step(const TrainCase& what, std::uint32_t rounds);

}  // namespace troupe::bench
