#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// A difference between machines that should be equal.
struct Difference {
  std::string what;                 // "NICs", "memory of NUMA 0", "PCI link of GPU 0000:3b:00.0"
  std::vector<std::string> values;  // by machine; items of a list that all machines have are left out; empty: unknown
  std::vector<std::size_t> odd;     // machines that differ from a value which more than half have
  bool partial = false;             // whether items that all machines have are left out of the values
};

struct Comparison {
  std::vector<Difference> differences;
  std::vector<std::vector<std::string>> missing;  // by machine: the features that others report and this one does not
};

/// Compares hardware, links, firmware, drivers, kernels, limits and settings of two or more machines. Names, serial
/// numbers, addresses, processes and the order of parts are ignored; memory sizes within 1 % are equal. A feature that
/// a machine does not report is not a difference. The version of the system is not listed beside the kernel where both
/// tell the machines apart in the same way.
Comparison compare(std::span<const Machine> machines);

}  // namespace troupe::topology
