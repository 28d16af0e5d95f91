#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// Something in which machines that should be alike are not.
struct Difference {
  std::string what;                 // "NICs", "memory of NUMA 0", "PCI link of GPU 0000:3b:00.0"
  std::vector<std::string> values;  // by machine; what all have in common is left out of lists; empty: unknown
  std::vector<std::size_t> odd;     // machines without the value that more than half have; empty: there is none
};

struct Comparison {
  std::vector<Difference> differences;
  std::vector<std::size_t> untold;  // by machine: how many things others tell and this one does not
};

/// Compares hardware, links, firmware, drivers, kernels, limits and settings of two or more machines. Does not look at
/// names, serial numbers, addresses, processes, or the order in which parts are listed; memory sizes count as equal
/// within 1 %. What a machine does not tell is no value, and makes no difference.
Comparison compare(std::span<const Machine> machines);

}  // namespace troupe::topology
