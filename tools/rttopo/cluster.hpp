#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/machine.hpp"
#include "runtime/topology/nccl_xml.hpp"

namespace troupe::rttopo {

/// Machines that are the same because they come from one file, or this host.
struct Node {
  std::string source;  // the file's name; "this host"
  std::uint32_t count = 1;
  topology::Machine machine;
  std::vector<topology::NcclGraph> graphs;  // of a file with NCCL's graphs, which describes no machine
};

/// "a.xml:4" -> a.xml, 4 times. A colon that no number follows belongs to the file's name.
struct FileCount {
  std::string file;
  std::uint32_t count = 1;
};
/// Throws Error{invalid} for 0 and for more than topology::kMostMachines.
FileCount file_count(const std::string& word);
/// Of --nodes: "a.xml:4,b.xml". Throws Error{invalid} also for an empty entry.
std::vector<FileCount> file_counts(const std::string& words);

/// Reads the files ("-": stdin), each of which describes one machine or, as `rttopo show --json` prints them, several;
/// or examines this host if there are none; with `watch`, it observes the host's RDMA counters for 200 ms.
std::vector<Node> nodes_of(std::span<const FileCount> files, Blocking* watch = nullptr);
/// Reads JSON (topology::machines_from_json), each machine `times` times. Throws Error{invalid}.
std::vector<Node> nodes_from_json(const std::string& text, const std::string& source, std::uint32_t times = 1);
/// Throws Error{invalid} if the file contained NCCL's graphs.
void refuse_graphs(const Node& node);
/// Each machine, as many times as it occurs, named by its host; if there are several, by the
/// file too: "node7 (a.xml)".
std::vector<topology::Machine> machines_of(std::span<const Node> nodes);

}  // namespace troupe::rttopo
