#pragma once

#include <span>
#include <string>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// The machine's packages, memory, PCI switches, GPUs and NICs as a graph for Graphviz (`dot -Tsvg`).
std::string to_graphviz(const Machine& machine);

/// A platform for SimGrid 3 (version 4.1 of its format): a host for each GPU, or for each package where a machine has
/// no GPUs, with the modelled rates of best paths; machines are joined by their NICs over one switch that is no
/// bottleneck.
std::string to_simgrid(std::span<const Machine> machines);

}  // namespace troupe::topology
