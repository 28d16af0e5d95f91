#include "tools/rttopo/cluster.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "devices/discovery/machine_discovery.hpp"
#include "runtime/base/detail/json.hpp"
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
  TROUPE_CHECK(error == std::errc{} && count >= 1 && count <= kMostNodes, Code::invalid, "\"", word,
               "\": the number of machines must be from 1 to ", kMostNodes);
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

namespace {

/// Whether it is what `rttopo show --json` prints of several machines.
bool is_cluster(const std::string& text) {
  if (text.find("\"troupe.cluster\"") == std::string::npos) return false;  // before it is read a second time
  const nlohmann::ordered_json json = json_from(text);
  return json.is_object() && json.value("schema", nlohmann::ordered_json{}) == "troupe.cluster";
}

}  // namespace

std::vector<Node> nodes_of(std::span<const FileCount> files, Blocking* watch) {
  std::vector<Node> nodes;
  if (files.empty()) nodes.push_back({.source = "this host", .machine = discover_machine({.watch = watch})});
  for (const FileCount& file : files) {
    const std::string path = file.file == "-" ? "/dev/stdin" : file.file;
    const std::string text = topology::read_topology_file(path);
    const topology::Format format = topology::format_of(text, file.file);
    if (format == topology::Format::json && is_cluster(text)) {
      for (Node& node : nodes_from_json(text, file.file)) {
        const std::uint64_t count = std::uint64_t{node.count} * file.count;
        TROUPE_CHECK(count <= kMostNodes, Code::invalid, file.file, ": ", count, " machines are more than ",
                     kMostNodes);
        node.count = static_cast<std::uint32_t>(count);
        nodes.push_back(std::move(node));
      }
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

std::vector<Node> nodes_from_json(const std::string& text, const std::string& source) {
  topology::check_json_depth(text, source);
  const nlohmann::ordered_json json = json_from(text);
  const auto is = [&](const char* name, const nlohmann::ordered_json& value) {
    return json.is_object() && json.contains(name) && json[name] == value;
  };
  const bool is_cluster =
      is("schema", "troupe.cluster") && is("version", 1) && json.contains("machines") && json["machines"].is_array();
  TROUPE_CHECK(is_cluster, Code::invalid, source,
               ": these are no machines (\"schema\": \"troupe.cluster\", version 1)");
  std::vector<Node> nodes;
  for (const auto& each : json["machines"]) {
    const bool is_node = each.is_object() && each.contains("machine") && each.contains("source") &&
                         each["source"].is_string() && each.contains("count") && each["count"].is_number_unsigned() &&
                         each["count"].get<std::uint64_t>() >= 1 && each["count"].get<std::uint64_t>() <= kMostNodes;
    TROUPE_CHECK(is_node, Code::invalid, source, ": a machine has no count or no source");
    Node& node = nodes.emplace_back();
    node.source = each["source"].get<std::string>();
    node.count = each["count"].get<std::uint32_t>();
    node.machine = topology::machine_from_json(json_text(each["machine"]), source + ", " + node.source);
  }
  TROUPE_CHECK(!nodes.empty(), Code::invalid, source, ": there is no machine");
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
