#include "tools/rttopo/cluster.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "devices/discovery/machine_discovery.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/machine_json.hpp"
#include "runtime/topology/reading.hpp"

namespace troupe::rttopo {

FileCount file_count(const std::string& word) {
  const auto colon = word.rfind(':');
  if (colon == std::string::npos) return {word};
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(word.data() + colon + 1, word.data() + word.size(), count);
  if (error == std::errc::invalid_argument || end != word.data() + word.size()) return {word};
  TROUPE_CHECK(error == std::errc{} && count >= 1 && count <= topology::kMostMachines, Code::invalid, "\"", word,
               "\": the number of machines must be from 1 to ", topology::kMostMachines);
  return {word.substr(0, colon), count};
}

std::vector<FileCount> file_counts(const std::string& words) {
  std::vector<FileCount> all;
  for (const std::string& word : split(words, ',')) {
    TROUPE_CHECK(!word.empty(), Code::invalid, "--nodes has an empty entry; write FILE:N,FILE:N");
    all.push_back(file_count(word));
  }
  return all;
}

std::vector<Node> nodes_of(std::span<const FileCount> files, Blocking* watch) {
  std::vector<Node> nodes;
  if (files.empty()) nodes.push_back({.source = "this host", .machine = discover_machine({.watch = watch})});
  for (const FileCount& file : files) {
    const std::string path = file.file == "-" ? "/dev/stdin" : file.file;
    const std::string text = topology::read_topology_file(path);
    const topology::Format format = topology::format_of(text, file.file);
    if (format == topology::Format::json) {
      std::ranges::move(nodes_from_json(text, file.file, file.count), std::back_inserter(nodes));
      continue;
    }
    Node& node = nodes.emplace_back(Node{.source = file.file, .count = file.count});
    if (format == topology::Format::nccl_graphs) {
      node.graphs = topology::graphs_from_nccl_xml(text, file.file);
    } else {
      node.machine = topology::machine_from(text, file.file);
    }
  }
  return nodes;
}

std::vector<Node> nodes_from_json(const std::string& text, const std::string& source, std::uint32_t times) {
  std::vector<Node> nodes;
  for (topology::MachineCount& read : topology::machines_from_json(text, source)) {
    const std::uint64_t count = std::uint64_t{read.count} * times;
    TROUPE_CHECK(count <= topology::kMostMachines, Code::invalid, source, ": ", count, " machines are more than ",
                 topology::kMostMachines);
    nodes.push_back({.source = std::move(read.source),
                     .count = static_cast<std::uint32_t>(count),
                     .machine = std::move(read.machine),
                     .graphs = {}});
  }
  return nodes;
}

void refuse_graphs(const Node& node) {
  TROUPE_CHECK(node.graphs.empty(), Code::invalid, node.source,
               ": these are graphs that NCCL found, not a topology; use its NCCL_TOPO_DUMP_FILE");
}

std::vector<topology::Machine> machines_of(std::span<const Node> nodes) {
  std::map<std::string, std::uint32_t> files;
  const auto name = [](const Node& node) { return std::filesystem::path{node.source}.filename().string(); };
  for (const Node& node : nodes) ++files[name(node)];
  const bool several = nodes.size() > 1 || (nodes.size() == 1 && nodes.front().count > 1);
  std::vector<topology::Machine> machines;
  for (const Node& node : nodes) {
    refuse_graphs(node);
    const std::string file = files[name(node)] > 1 ? node.source : name(node);
    for (std::uint32_t i = 0; i < node.count; ++i) {
      topology::Machine& machine = machines.emplace_back(node.machine);
      const std::string place = node.count > 1 ? file + ':' + std::to_string(i) : file;
      if (machine.host.empty())
        machine.host = place;
      else if (several)
        machine.host += " (" + place + ')';
    }
  }
  return machines;
}

}  // namespace troupe::rttopo
