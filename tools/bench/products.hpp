#pragma once

#include "tools/bench/train.hpp"

namespace troupe::bench {

/// What `rtbench products` measures: the matrix products of a training step alone, run by as many processes at once as
/// the case has, each on the cores that the plan gives it. Prints one JSON line: microseconds a step, one value a
/// window.
int run_products(Blocking& blocking, const rtrun::Signals& signals, const TrainCase& what,
                 std::vector<std::string> arguments);

/// What `rtbench step` measures: the time of a step of the whole job against that of its matrix products, by turns,
/// `rounds` times. Prints one JSON line with both and the median of their ratios.
int run_step(const TrainCase& what, std::uint32_t rounds);

}  // namespace troupe::bench
