#include "tools/rttopo/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/topology/measured_view.hpp"
#include "apps/topology/picture.hpp"
#include "apps/topology/text_view.hpp"
#include "runtime/base/detail/json.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/differences.hpp"
#include "runtime/topology/exports.hpp"
#include "runtime/topology/hwloc_xml.hpp"
#include "runtime/topology/machine_json.hpp"
#include "runtime/topology/machine_schema.hpp"
#include "runtime/topology/measurements.hpp"
#include "runtime/topology/nccl_xml.hpp"
#include "tools/rttopo/answers.hpp"

namespace troupe::rttopo {
namespace {

using namespace topology;
using nlohmann::ordered_json;

/// Writes to the file, or to `out` if no file is named.
void write(const std::string& path, const std::string& content, std::ostream& out) {
  if (path.empty())
    out << content;
  else
    write_new_file(path, content);
}

ordered_json counts_json(const Counts& counts) {
  ordered_json json;
  for (const auto& [name, member] : kCounts) json[name] = counts.*member;
  return json;
}

ordered_json graphs_json(const std::vector<NcclGraph>& graphs) {
  ordered_json all = ordered_json::array();
  for (const NcclGraph& graph : graphs)
    all.push_back({{"id", graph.id},
                   {"pattern", graph.pattern},
                   {"speed_intra", graph.speed_intra},
                   {"type_intra", graph.type_intra},
                   {"channels", graph.channels}});
  return all;
}

ordered_json node_json(const Node& node) {
  if (!node.graphs.empty())
    return {{"schema", "troupe.nccl_graphs"},
            {"version", 1},
            {"counts", counts_json({})},
            {"graphs", graphs_json(node.graphs)}};
  return json_from(to_json(node.machine));
}

int show_json(const std::vector<Node>& nodes, const std::optional<Measurements>& measured, std::ostream& out) {
  if (nodes.size() == 1 && nodes.front().count == 1) {
    if (nodes.front().graphs.empty() && measured) {
      ordered_json json = node_json(nodes.front());
      json["measurements"] = json_from(to_json(*measured));
      print(json, out);
    } else if (nodes.front().graphs.empty())
      out << to_json(nodes.front().machine);
    else
      print(node_json(nodes.front()), out);
    return 0;
  }
  Counts sum;
  ordered_json machines = ordered_json::array();
  for (const Node& node : nodes) {
    const Counts here = count(node.machine);
    for (const auto& [name, member] : kCounts) sum.*member += here.*member * node.count;
    machines.push_back({{"count", node.count}, {"source", node.source}, {"machine", node_json(node)}});
  }
  print({{"schema", "troupe.cluster"}, {"version", 1}, {"counts", counts_json(sum)}, {"machines", machines}}, out);
  return 0;
}

void print_graphs(const Node& node, std::ostream& out) {
  out << node.source << "  graphs that NCCL found\n";
  for (const NcclGraph& graph : node.graphs) {
    out << fmt::format("graph {} ({}), {:g} GB/s a channel, slowest class {}\n", graph.id,
                       graph.pattern == 4 ? "ring" : "tree", graph.speed_intra, graph.type_intra);
    for (const auto& channel : graph.channels) out << "  " << joined(channel, " - ") << '\n';
  }
}

int show(const CommandLine& line, std::ostream& out, bool color) {
  if (line.schema) {
    out << json_schema();
    return 0;
  }
  const std::vector<Node> nodes = nodes_of(line);
  if (!line.svg.empty()) {
    const Index index{only(nodes, "a picture").machine};
    if (!write_new_file(line.svg, picture(index, outline(index)))) out << line.svg << '\n';
    return 0;
  }
  const std::optional<Measurements> measured = figures_of(line);
  if (line.json) return show_json(nodes, measured, out);
  std::uint32_t all = 0;
  for (const Node& node : nodes) all += node.count;
  if (all > 1) out << all << " machines of " << nodes.size() << (nodes.size() == 1 ? " kind\n" : " kinds\n");
  for (const Node& node : nodes) {
    if (!node.graphs.empty()) {
      print_graphs(node, out);
      continue;
    }
    if (all > 1) out << '\n' << node.count << " x " << node.source << '\n';
    const Index index{node.machine};
    print_tree(outline(index, line.all), color, out);
  }
  if (measured) out << '\n' << measured_text(*measured);
  return 0;
}

ordered_json table_json(const Index& index, const PathTable& table) {
  ordered_json json{{"title", table.title},
                    {"rows", ordered_json::array()},
                    {"columns", ordered_json::array()},
                    {"cells", ordered_json::array()}};
  for (const PartIndex part : table.rows) json["rows"].push_back(label_of(index, part));
  for (const PartIndex part : table.columns) json["columns"].push_back(label_of(index, part));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    ordered_json row = ordered_json::array();
    for (std::size_t j = 0; j < table.columns.size(); ++j) {
      const std::size_t at = i * table.columns.size() + j;
      row.push_back(path_json(index, table.paths[at]));
      row.back()["slow"] = static_cast<bool>(table.slow[at]);
      if (!table.distances.empty()) row.back()["distance"] = table.distances[at];
      if (!table.measured.empty() && table.measured[at] > 0)
        row.back()["measured_bytes_per_second"] = table.measured[at];
    }
    json["cells"].push_back(std::move(row));
  }
  return json;
}

/// "GPU 0 > GPU 1": each member after its parent.
std::string tree_words(const Index& index, const std::vector<PartIndex>& members, const Tree& tree) {
  std::vector<std::string> edges;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (tree.parent[i] != i)
      edges.push_back(label_of(index, members[tree.parent[i]]) + " > " + label_of(index, members[i]));
  return joined(edges);
}

/// Removes NICs that have less than half of the speed of the fastest one, where all their ports' rates are known, or
/// all their PCI links'.
void drop_slow(const Index& index, std::vector<PartIndex>& nics) {
  const auto of_ports = [&](PartIndex part) {
    std::uint64_t most = 0;
    const Nic& nic = *index.nic_at(part);
    for (const RdmaPort& port : nic.ports) most = std::max(most, port.bits_per_second);
    for (const Interface& interface : nic.interfaces) most = std::max(most, interface.bits_per_second);
    return static_cast<double>(most);
  };
  const auto of_link = [&](PartIndex part) {
    const auto& pci = index.machine().parts[part].pci;
    return pci ? bytes_per_second(pci->now) : 0;
  };
  const auto drop = [&](const auto& rate_of) {
    std::vector<double> rates;
    std::ranges::transform(nics, std::back_inserter(rates), rate_of);
    const auto ends = std::ranges::minmax(rates);
    if (ends.min <= 0) return false;
    std::erase_if(nics, [&](PartIndex nic) { return rate_of(nic) < ends.max / 2; });
    return true;
  };
  if (!drop(of_ports)) drop(of_link);
}

/// GPUs with the same nearest NICs, by is_nearer(); of several those that are not much slower than the others.
struct NearestNics {
  std::string path_class;
  std::vector<std::string> gpus;
  std::vector<std::string> nics;
};
std::vector<NearestNics> nearest_nics(const Index& index, const PathTable& table) {
  std::vector<NearestNics> all;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::span paths = std::span{table.paths}.subspan(i * table.columns.size(), table.columns.size());
    const Path& best = *std::ranges::min_element(paths, is_nearer);
    NearestNics here{.path_class = text_of(best), .gpus = {label_of(index, table.rows[i])}, .nics = {}};
    std::vector<PartIndex> nics;
    for (std::size_t j = 0; j < paths.size(); ++j)
      if (!is_nearer(best, paths[j])) nics.push_back(table.columns[j]);
    drop_slow(index, nics);
    for (const PartIndex nic : nics) here.nics.push_back(label_of(index, nic));
    const auto same = [&](const NearestNics& n) { return n.nics == here.nics && n.path_class == here.path_class; };
    if (const auto at = std::ranges::find_if(all, same); at != all.end())
      at->gpus.push_back(here.gpus.front());
    else
      all.push_back(std::move(here));
  }
  return all;
}

/// What `matrix` shows of a machine.
struct MatrixView {
  MatrixView(const Machine& machine, const std::optional<Measurements>& measured)
      : index(machine), tables(path_tables(index)) {
    if (measured)
      for (PathTable& table : tables) add_measured(index, table, *measured);
    for (const PathTable& table : tables) {
      if (table.title == kGpus) find_orders(table);
      if (table.title == kGpusAndNics) nearest = nearest_nics(index, table);
    }
  }
  void find_orders(const PathTable& table) {
    gpus = table.rows;
    const RateMatrix rates = rates_between(index, gpus);
    ring = find_ring(rates);
    tree = find_tree(rates);
  }
  const Index index;
  std::vector<PathTable> tables;
  std::vector<PartIndex> gpus;  // of ring and tree; empty: there are none
  Ring ring;
  Tree tree;
  std::vector<NearestNics> nearest;
};

ordered_json matrix_json(const MatrixView& view) {
  ordered_json json{{"schema", "troupe.matrix"}, {"version", 1}, {"tables", ordered_json::array()}};
  for (const PathTable& table : view.tables) json["tables"].push_back(table_json(view.index, table));
  if (!view.gpus.empty()) {
    json["ring"] = {
        {"order", view.ring.order}, {"slowest_bytes_per_second", view.ring.slowest}, {"exact", view.ring.exact}};
    json["tree"] = {{"parent", view.tree.parent}, {"slowest_bytes_per_second", view.tree.slowest}};
  }
  if (const std::string left_out = left_out_text(view.index); !left_out.empty()) json["left_out"] = left_out;
  for (const NearestNics& each : view.nearest)
    json["nearest_nics"].push_back({{"gpus", each.gpus}, {"nics", each.nics}, {"class", each.path_class}});
  return json;
}

void print_matrix(const MatrixView& view, std::ostream& out, bool color) {
  for (const PathTable& table : view.tables) {
    print_table(view.index, table, color, out);
    if (table.title == kGpus) {
      out << "ring  " << ring_text(view.index, view.gpus, view.ring) << '\n';
      out << "tree  " << tree_words(view.index, view.gpus, view.tree) << ", slowest edge "
          << rate_text(view.tree.slowest) << '\n';
      out << unknown_ends_text(view.index, view.gpus) << no_links_text(view.index);
    }
    if (table.title == kGpusAndNics)
      for (const NearestNics& each : view.nearest)
        out << "nearest to " << joined(each.gpus) << ": " << joined(each.nics) << " (" << each.path_class << ")\n";
    out << '\n';
  }
  const std::string left_out = left_out_text(view.index);
  out << left_out;
  if (view.tables.empty() && left_out.empty())
    out << "There is one NUMA node and at most one GPU: there are no paths to compare.\n";
}

int matrix_of_several(const CommandLine& line, const std::vector<Node>& nodes, std::ostream& out, bool color) {
  TROUPE_CHECK(line.figures.empty(), Code::invalid, "--figures are those of one machine, and there are several");
  ordered_json machines = ordered_json::array();
  std::vector<PathTable> tables;
  for (const Node& node : nodes) {
    refuse_graphs(node);
    MatrixView view{node.machine, std::nullopt};
    if (line.json) {
      machines.push_back({{"count", node.count}, {"source", node.source}, {"matrix", matrix_json(view)}});
      continue;
    }
    out << node.count << " x " << node.source;
    if (!node.machine.host.empty()) out << ", " << node.machine.host;
    out << '\n';
    print_matrix(view, out, color);
    if (view.tables.empty()) out << '\n';
    std::move(view.tables.begin(), view.tables.end(), std::back_inserter(tables));
  }
  if (line.json)
    print({{"schema", "troupe.matrices"}, {"version", 1}, {"machines", machines}}, out);
  else
    out << legend_text(tables);
  return 0;
}

int matrix(const CommandLine& line, std::ostream& out, bool color) {
  const std::vector<Node> nodes = nodes_of(line);
  if (nodes.size() > 1 || nodes.front().count > 1) return matrix_of_several(line, nodes, out, color);
  const std::optional<Measurements> measured = figures_of(line);
  const MatrixView view{only(nodes, "a matrix").machine, measured};
  if (line.json) {
    ordered_json json = matrix_json(view);
    if (measured) json["measurements"] = json_from(to_json(*measured));
    print(json, out);
    return 0;
  }
  print_matrix(view, out, color);
  if (measured) out << measured_text(*measured) << '\n';
  out << legend_text(view.tables);
  if (!measured && line.files.empty() && line.run.empty())
    out << "Nothing was measured here yet; run `rttopo bench` to measure this host.\n";
  return 0;
}

/// Prints machines with the same value on one line; those with the most frequent value are only counted.
void print_values(const Difference& each, const std::vector<Machine>& machines, std::ostream& out) {
  std::vector<std::vector<std::size_t>> groups;
  std::size_t known = 0;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    if (each.values[i].empty()) continue;
    ++known;
    const auto at = std::find_if(groups.begin(), groups.end(),
                                 [&](const auto& group) { return each.values[group.front()] == each.values[i]; });
    if (at == groups.end())
      groups.push_back({i});
    else
      at->push_back(i);
  }
  if (groups.size() > 2 && groups.size() == known) out << "  all differ\n";
  for (const auto& group : groups) {
    std::vector<std::string> names;
    for (const std::size_t i : group) names.push_back(machines[i].host);
    const bool usual = 2 * group.size() > known && group.size() > 1;
    out << "  " << (usual ? text(group.size(), " machines") : joined(names)) << ": "
        << (each.partial ? "besides what all have: " : "") << each.values[group.front()] << '\n';
  }
}

void print_missing(const std::string& host, std::vector<std::string> features, std::ostream& out) {
  const std::size_t count = features.size();
  constexpr std::size_t kNamed = 6;
  if (count == 0) return;
  if (count > kNamed) {
    features.resize(kNamed);
    features.push_back(text("and ", count - kNamed, " more"));
  }
  out << host << " does not tell " << count << (count == 1 ? " thing" : " things") << " that others tell ("
      << joined(features) << "); nothing follows from that.\n";
}

int diff(const CommandLine& line, std::ostream& out) {
  std::vector<Node> nodes = nodes_of(line);
  if (nodes.size() == 1 && nodes.front().count == 1) {
    std::vector<Node> here = nodes_of(std::span<const FileCount>{});
    nodes.insert(nodes.end(), here.begin(), here.end());
  }
  const std::vector<Machine> machines = machines_of(nodes);
  const auto [found, missing] = compare(machines);
  if (line.json) {
    ordered_json all = ordered_json::array();
    for (const Difference& each : found)
      all.push_back({{"what", each.what}, {"values", each.values}, {"odd", each.odd}});
    ordered_json names = ordered_json::array();
    for (const Machine& machine : machines) names.push_back(machine.host);
    ordered_json untold = ordered_json::array();
    for (const auto& features : missing) untold.push_back(features.size());
    print({{"schema", "troupe.diff"}, {"version", 1}, {"machines", names}, {"untold", untold}, {"differences", all}},
          out);
    return found.empty() ? 0 : 1;
  }
  if (found.empty()) out << "The " << machines.size() << " machines are alike.\n";
  std::vector<std::size_t> votes(machines.size());
  for (const Difference& each : found) {
    for (const std::size_t i : each.odd) ++votes[i];
    out << each.what << '\n';
    print_values(each, machines, out);
  }
  const bool more = std::ranges::any_of(votes, [](std::size_t count) { return count > 0; }) ||
                    std::ranges::any_of(missing, [](const auto& features) { return !features.empty(); });
  if (!found.empty() && more) out << '\n';
  for (std::size_t i = 0; i < machines.size(); ++i)
    if (votes[i] > 0)
      out << machines[i].host << " differs from most in " << votes[i] << " of " << found.size() << " things.\n";
  for (std::size_t i = 0; i < machines.size(); ++i) print_missing(machines[i].host, missing[i], out);
  return found.empty() ? 0 : 1;
}

std::string exported(const CommandLine& line, const std::vector<Node>& nodes) {
  if (line.format == "simgrid") return to_simgrid(machines_of(nodes));
  const Machine& machine = only(nodes, "this format").machine;
  if (line.format == "hwloc") return to_hwloc_xml(machine);
  if (line.format == "nccl") return to_nccl_xml(machine);
  if (line.format == "dot") return to_graphviz(machine);
  if (line.format == "json") return to_json(machine);
  const Index index{machine};
  return picture(index, outline(index));
}

}  // namespace

int run(const CommandLine& line, std::ostream& out, bool color) {
  switch (line.verb) {
    case Verb::show: return show(line, out, color);
    case Verb::matrix: return matrix(line, out, color);
    case Verb::bench: break;  // handled by main
    case Verb::diff: return diff(line, out);
    case Verb::explain: return explain(line, out);
    case Verb::doctor: return doctor(line, out, color);
    case Verb::import_file: write(line.out, to_json(only(nodes_of(line), "an import").machine), out); return 0;
    case Verb::export_file: write(line.out, exported(line, nodes_of(line)), out); return 0;
    case Verb::env: return print_environment(line.json, out);
  }
  return 0;
}

}  // namespace troupe::rttopo
