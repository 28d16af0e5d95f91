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
  std::vector<std::string> values;  // by machine; what all have in common is left out of lists
  std::vector<std::size_t> odd;     // machines that do not have the value that most have (of equally many: the first's)
};

/// Compares hardware, links, firmware, drivers, kernels, limits and settings of two or more machines. Does not look at
/// names, serial numbers, addresses, processes, or the order in which parts are listed; memory sizes count as equal
/// within 1 %.
std::vector<Difference> differences(std::span<const Machine> machines);

}  // namespace troupe::topology
