#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// Reads XML exported by hwloc 1 or 2 (lstopo FILE.xml). NUMA nodes of hwloc 1 contain processors; they become memory
/// beside the processors, as in hwloc 2. Throws Error{invalid} for other or too large XML, Error{unsupported} for XML
/// of hwloc 3. Both texts begin with `source`.
Machine machine_from_hwloc_xml(std::string_view text, std::string_view source);

/// XML in the form of hwloc 2, which hwloc 2 and lstopo can load. Data without a form in hwloc (GPU health, links,
/// limits, ranks) is in one info of the machine, from which machine_from_hwloc_xml() restores it.
std::string to_hwloc_xml(const Machine& machine);

}  // namespace troupe::topology
