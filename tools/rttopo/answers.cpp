#include "tools/rttopo/answers.hpp"

#include "runtime/base/detail/json.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"

namespace troupe::rttopo {

using namespace topology;
using nlohmann::ordered_json;

void print(const ordered_json& json, std::ostream& out) { out << json_text(json, 1) << '\n'; }

std::vector<Node> nodes_of(const CommandLine& line, Blocking* watch) {
  return line.nodes.empty() ? nodes_of(line.files, watch) : line.nodes;
}

std::optional<Measurements> figures_of(const CommandLine& line) {
  if (!line.figures.empty()) {
    auto figures = read_measurements(line.figures);
    TROUPE_CHECK(figures, Code::invalid, line.figures, ": there is no such file; `rttopo bench --out ", line.figures,
                 "` makes it");
    return figures;
  }
  if (!line.files.empty() || !line.nodes.empty()) return std::nullopt;
  return read_measurements(measurements_file(host_name()));
}

const Node& only(const std::vector<Node>& nodes, const char* what) {
  for (const Node& node : nodes) refuse_graphs(node);
  TROUPE_CHECK(nodes.size() == 1, Code::invalid, what, " needs a single machine; name one topology with -i");
  return nodes.front();
}

ordered_json path_json(const Index& index, const Path& path) {
  ordered_json json{
      {"class", text_of(path)}, {"modelled_bytes_per_second", path.bytes_per_second}, {"assumed", path.assumed}};
  if (!path.slowest.empty()) json["slowest"] = path.slowest;
  if (!path.via.empty()) {
    json["via"] = ordered_json::array();
    for (const PartIndex part : path.via) json["via"].push_back(label_of(index, part));
  }
  return json;
}

}  // namespace troupe::rttopo
