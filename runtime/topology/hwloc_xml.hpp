#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// Reads what hwloc 1 or 2 exported (lstopo FILE.xml). NUMA nodes of hwloc 1, which contain processors, become memory
/// beside them, as hwloc 2 has it. Throws Error{invalid}: no such XML, or too much of it; Error{unsupported}: written
/// by hwloc 3. Both begin with `source`.
Machine machine_from_hwloc_xml(std::string_view text, std::string_view source);

/// As hwloc 2 writes it; hwloc 2 and lstopo load it. What hwloc has no words for (GPU health, links, limits, ranks)
/// stands in one info of the machine, from which machine_from_hwloc_xml() makes the same value again.
std::string to_hwloc_xml(const Machine& machine);

}  // namespace troupe::topology
