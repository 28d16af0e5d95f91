// Which paths there are between two parts of a machine, and which one is used.

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "apps/topology/measured_view.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "tools/rttopo/answers.hpp"

namespace troupe::rttopo {
namespace {

using namespace topology;
using nlohmann::ordered_json;

PartIndex part_named(const Index& index, const std::string& name) {
  if (const PartIndex part = index.at_bus(name); part != kNoPart) return part;
  const auto compact = [](const std::string& words) {
    std::string all = lower_case(words);
    std::erase(all, ' ');
    return all;
  };
  const std::string wanted = compact(name);
  for (PartIndex i = 0; i < index.machine().parts.size(); ++i)
    if (compact(label_of(index, i)) == wanted) return i;
  for (const Nic& nic : index.machine().nics) {
    const PartKind kind = index.machine().parts[nic.part].kind;
    if (kind != PartKind::pci_function && kind != PartKind::misc) continue;  // such an interface has no place
    for (const RdmaPort& port : nic.ports)
      if (port.device == name) return nic.part;
    for (const Interface& interface : nic.interfaces)
      if (interface.name == name) return nic.part;
  }
  for (PartIndex i = 0; i < index.machine().parts.size(); ++i)
    for (const OsDevice& os_device : index.machine().parts[i].os_devices)
      if (os_device.name == name) return i;
  std::vector<PartIndex> ends_so;
  for (PartIndex i = 0; i < index.machine().parts.size(); ++i) {
    const auto& pci = index.machine().parts[i].pci;
    if (!pci || pci->bus.empty() || wanted.size() < 2) continue;
    const std::string slot = pci->bus.substr(0, pci->bus.rfind('.'));
    for (const std::string& bus : {pci->bus, slot, slot.substr(0, slot.rfind(':'))})
      if (bus == wanted || bus.ends_with(':' + wanted)) {
        ends_so.push_back(i);
        break;
      }
  }
  if (ends_so.size() == 1) return ends_so.front();
  TROUPE_CHECK(ends_so.empty(), Code::invalid, '"', name,
               "\" is short for several PCI bus ids: ", index.machine().parts[ends_so[0]].pci->bus, " and ",
               index.machine().parts[ends_so[1]].pci->bus);
  fail(Code::invalid, text("there is no part \"", name, "\"; a part is ", kPartWords, " (`rttopo show` lists them)"));
}

/// The paths between the two parts of the command.
struct Explanation {
  Explanation(const Machine& machine, const std::vector<std::string>& of, const std::optional<Measurements>& figures)
      : index(machine), from(part_named(index, of[0])), to(part_named(index, of[1])) {
    if (!figures) return;
    PathTable table{.title = {}, .rows = {from}, .columns = {to}, .paths = {paths.front()}, .slow = {false}};
    add_measured(index, table, *figures);
    if (!table.measured.empty()) measured = table.measured.front();
  }
  const Index index;
  const PartIndex from;
  const PartIndex to;
  const std::vector<Path> paths = paths_between(index, from, to);
  double measured = 0;  // bytes per second between the two, over whichever path; 0: not measured
};

ordered_json explanation_json(const Explanation& told) {
  ordered_json all = ordered_json::array();
  for (const Path& path : told.paths) all.push_back(path_json(told.index, path));
  ordered_json json{{"schema", "troupe.paths"},
                    {"version", 1},
                    {"from", label_of(told.index, told.from)},
                    {"to", label_of(told.index, told.to)},
                    {"paths", all}};
  if (told.measured > 0) json["measured_bytes_per_second"] = told.measured;
  return json;
}

void print_explanation(const Explanation& told, std::ostream& out) {
  const std::string from = label_of(told.index, told.from);
  const std::string to = label_of(told.index, told.to);
  out << from << " to " << to << '\n';
  for (const Path& path : told.paths) {
    std::vector<std::string> stops{from};
    for (const PartIndex part : path.via) stops.push_back(label_of(told.index, part));
    stops.push_back(to);
    out << (&path == &told.paths.front() ? "* " : "  ")
        << fmt::format("{:<5} {:>10}  {}", text_of(path), rate_text(path.bytes_per_second), joined(stops, " - "));
    if (!path.slowest.empty()) out << "; limited by " << path.slowest;
    out << '\n';
  }
  const bool fastest = std::ranges::none_of(
      told.paths, [&](const Path& path) { return path.bytes_per_second > told.paths.front().bytes_per_second; });
  out << (told.paths.size() == 1 ? "* is the only path in this description.\n"
          : fastest              ? "* is used: its modelled bandwidth is the highest.\n"
                                 : "* is used: its class is better, and no other path is clearly faster.\n");
  out << unknown_ends_text(told.index, {told.from, told.to});
  if (told.measured > 0) out << "Measured by `rttopo bench`: " << rate_text(told.measured) << '\n';
}

/// For each kind of machine; it is an error if none has both parts.
int explain_several(const CommandLine& line, const std::vector<Node>& nodes, std::ostream& out) {
  TROUPE_CHECK(line.figures.empty(), Code::invalid, "--figures are those of one machine, and there are several");
  std::deque<std::optional<Explanation>> told;
  std::vector<std::string> missing(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    refuse_graphs(nodes[i]);
    try {
      told.emplace_back().emplace(nodes[i].machine, line.of, std::nullopt);
    } catch (const Error& error) {
      missing[i] = error.what();
    }
  }
  TROUPE_CHECK(std::ranges::any_of(told, [](const auto& each) { return each.has_value(); }), Code::invalid,
               nodes.front().source, ": ", missing.front());
  ordered_json machines = ordered_json::array();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (line.json) {
      ordered_json& entry = machines.emplace_back(ordered_json{{"count", nodes[i].count}, {"source", nodes[i].source}});
      if (told[i])
        entry["explanation"] = explanation_json(*told[i]);
      else
        entry["error"] = missing[i];
      continue;
    }
    out << (i == 0 ? "" : "\n") << nodes[i].count << " x " << nodes[i].source << '\n';
    if (told[i])
      print_explanation(*told[i], out);
    else
      out << missing[i] << '\n';
  }
  if (line.json) print({{"schema", "troupe.explanations"}, {"version", 1}, {"machines", machines}}, out);
  return 0;
}

}  // namespace

int explain(const CommandLine& line, std::ostream& out) {
  const std::vector<Node> nodes = nodes_of(line);
  if (nodes.size() > 1 || nodes.front().count > 1) return explain_several(line, nodes, out);
  const Explanation told{only(nodes, "an explanation").machine, line.of, figures_of(line)};
  if (line.json)
    print(explanation_json(told), out);
  else
    print_explanation(told, out);
  return 0;
}

}  // namespace troupe::rttopo
