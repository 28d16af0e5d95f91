#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

/// Reads a system topology of NCCL or RCCL (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): each <cpu> becomes a package with a
/// NUMA node. Throws Error{invalid}, whose text begins with `source`.
Machine machine_from_nccl_xml(std::string_view text, std::string_view source);

/// For NCCL_TOPO_FILE: processors, PCI switches, GPUs and NICs; hwloc's ports of a switch become one switch. Data that
/// NCCL has no form for is left out.
std::string to_nccl_xml(const Machine& machine);

/// The result of NCCL's search (NCCL_GRAPH_DUMP_FILE).
struct NcclGraph {
  std::uint32_t id = 0;
  std::uint32_t pattern = 0;                         // 4: ring, 1 and 3: kinds of trees
  double speed_intra = 0;                            // GB/s of a channel inside a node
  std::string type_intra;                            // the slowest class of paths in it: "NVL", "PIX", "SYS"
  std::vector<std::vector<std::uint32_t>> channels;  // GPUs by NCCL's numbers, in order
  friend bool operator==(const NcclGraph&, const NcclGraph&) = default;
};
/// Throws Error{invalid}, whose text begins with `source`.
std::vector<NcclGraph> graphs_from_nccl_xml(std::string_view text, std::string_view source);

}  // namespace troupe::topology
