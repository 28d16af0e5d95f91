#pragma once

#include <span>
#include <string>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// The machine's packages, memory, PCI switches, GPUs and NICs as a graph for Graphviz (`dot -Tsvg`).
std::string to_graphviz(const Machine& machine);

/// A platform for SimGrid 3 (version 4.1 of its format): a host for each GPU, or for each package of a machine without
/// GPUs, with the modelled rates of the best paths. The NICs of all machines are connected to one switch, which
/// is not a bottleneck.
std::string to_simgrid(std::span<const Machine> machines);

}  // namespace troupe::topology
