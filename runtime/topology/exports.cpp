#include "runtime/topology/exports.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <pugixml.hpp>

#include "runtime/base/error.hpp"
#include "runtime/topology/detail/xml.hpp"
#include "runtime/topology/paths.hpp"

namespace troupe::topology {
namespace {

/// In the form that Graphviz reads: \n ends a line of a label.
std::string in_dot_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    if (static_cast<unsigned char>(c) >= ' ') out += c;
  }
  return out + '"';
}

std::string gigabytes(double bytes_per_second) {
  if (bytes_per_second <= 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GB/s", bytes_per_second / 1e9);
  return text;
}

bool is_drawn(const Index& index, PartIndex part) {
  const PartKind kind = index.machine().parts[part].kind;
  if (kind == PartKind::pci_function) return index.gpu_at(part) != nullptr || index.nic_at(part) != nullptr;
  return kind == PartKind::machine || kind == PartKind::package || kind == PartKind::numa ||
         kind == PartKind::host_bridge || kind == PartKind::pci_bridge || kind == PartKind::pci_switch;
}

/// Whether the part contains anything that is drawn: bridges without devices are left out.
bool leads_somewhere(const Index& index, PartIndex part) {
  const Part& it = index.machine().parts[part];
  if (!it.pci || it.kind == PartKind::pci_function) return is_drawn(index, part);
  const auto& below = index.children(part);
  return std::any_of(below.begin(), below.end(), [&](PartIndex child) { return leads_somewhere(index, child); });
}

/// Modelled latencies in seconds, since none is measured.
constexpr const char* kInside = "1us";
constexpr const char* kOutside = "2us";
/// The rate of a NIC that does not report one.
constexpr double kAssumedNic = 1.25e9;
constexpr std::size_t kMostMembers = 1024;  // of a machine

double nic_rate(const Machine& machine) {
  double sum = 0;
  for (const Nic& nic : machine.nics) {
    double here = 0;
    for (const RdmaPort& port : nic.ports) here += static_cast<double>(port.bits_per_second) / 8;
    if (here == 0)
      for (const Interface& interface : nic.interfaces) here += static_cast<double>(interface.bits_per_second) / 8;
    sum += here;
  }
  return sum > 0 ? sum : kAssumedNic;
}

void add_link(pugi::xml_node zone, const std::string& id, double bytes_per_second, const char* latency) {
  pugi::xml_node link = zone.append_child("link");
  link.append_attribute("id") = id.c_str();
  link.append_attribute("bandwidth") = (detail::shortest(std::max(bytes_per_second, 1.0)) + "Bps").c_str();
  link.append_attribute("latency") = latency;
}

void add_route(pugi::xml_node zone, const std::string& from, const std::string& to, const std::string& link) {
  pugi::xml_node route = zone.append_child("route");
  route.append_attribute("src") = from.c_str();
  route.append_attribute("dst") = to.c_str();
  route.append_child("link_ctn").append_attribute("id") = link.c_str();
}

void add_zone(pugi::xml_node world, const Machine& machine, const std::string& name) {
  const Index index{machine};
  std::vector<PartIndex> members;
  for (const Gpu& gpu : machine.gpus) members.push_back(gpu.part);
  for (PartIndex i = 0; machine.gpus.empty() && i < machine.parts.size(); ++i)
    if (machine.parts[i].kind == PartKind::package) members.push_back(i);
  if (members.empty()) members.push_back(kRoot);
  TROUPE_CHECK(members.size() <= kMostMembers, Code::invalid, "a machine has ", members.size(),
               machine.gpus.empty() ? " packages" : " GPUs", "; a platform for SimGrid has a link between each two of ",
               kMostMembers, " at most");
  pugi::xml_node zone = world.append_child("zone");
  zone.append_attribute("id") = name.c_str();
  zone.append_attribute("routing") = "Full";
  const auto id = [&](std::size_t i) { return text(name, machine.gpus.empty() ? "-cpu" : "-gpu", i); };
  for (std::size_t i = 0; i < members.size(); ++i) {
    pugi::xml_node host = zone.append_child("host");
    host.append_attribute("id") = id(i).c_str();
    host.append_attribute("speed") = "1Gf";
  }
  const std::string out = name + "-out";
  zone.append_child("router").append_attribute("id") = out.c_str();
  std::vector<std::array<std::string, 3>> routes;
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = i + 1; j < members.size(); ++j) {
      const std::string link = text(id(i), "-", j);
      add_link(zone, link, best_path(index, members[i], members[j]).bytes_per_second, kInside);
      routes.push_back({id(i), id(j), link});
    }
    const PartIndex nic = nearest_nic(index, members[i]);
    const double rate = nic == kNoPart ? kAssumedNic : best_path(index, members[i], nic).bytes_per_second;
    add_link(zone, id(i) + "-out", rate, kInside);
    routes.push_back({id(i), out, id(i) + "-out"});
  }
  for (const auto& [from, to, link] : routes) add_route(zone, from, to, link);
}

}  // namespace

std::string to_graphviz(const Machine& machine) {
  const Index index{machine};
  std::string out =
      "graph topology {\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"Helvetica\"];\n";
  for (PartIndex i = 0; i < machine.parts.size(); ++i) {
    if (!is_drawn(index, i) || !leads_somewhere(index, i)) continue;
    const Part& part = machine.parts[i];
    std::string label = label_of(index, i);
    if (const Gpu* const gpu = index.gpu_at(i); gpu != nullptr && !gpu->model.empty()) label += "\n" + gpu->model;
    if (part.kind == PartKind::numa && part.bytes > 0) label += "\n" + bytes_text(part.bytes);
    const char* const color = index.gpu_at(i) != nullptr    ? "\"#d9ead3\""
                              : index.nic_at(i) != nullptr  ? "\"#cfe2f3\""
                              : part.kind == PartKind::numa ? "\"#fff2cc\""
                                                            : "white";
    out += text("  p", i, " [label=", in_dot_quotes(label), ", fillcolor=", color, "];\n");
    PartIndex above = part.parent;
    while (above != kNoPart && !is_drawn(index, above)) above = machine.parts[above].parent;
    if (above != kNoPart)
      out += text("  p", above, " -- p", i, " [label=", in_dot_quotes(part.pci ? text_of(part.pci->now) : ""), "];\n");
  }
  std::vector<std::pair<PartIndex, std::string>> switches;  // parts outside the PCI tree to which links lead
  for (const AcceleratorLink& link : index.links()) {
    const PartIndex to = index.at_bus(link.to);
    const std::string rate = link.lanes > 0 ? text(name_of(link.kind), " x", link.lanes)
                                            : gigabytes(static_cast<double>(link.bytes_per_second));
    if (to != kNoPart && index.gpu_at(to) != nullptr) {
      if (link.from < to)
        out += text("  p", link.from, " -- p", to,
                    " [color=green, penwidth=2, constraint=false, label=", in_dot_quotes(rate), "];\n");
    } else if (!link.to.empty()) {
      out += text("  ", in_dot_quotes(link.to), " [shape=hexagon];\n  p", link.from, " -- ", in_dot_quotes(link.to),
                  " [color=green, label=", in_dot_quotes(rate), "];\n");
    }
  }
  return out + "}\n";
}

std::string to_simgrid(std::span<const Machine> machines) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.prepend_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  document.append_child(pugi::node_doctype).set_value("platform SYSTEM \"https://simgrid.org/simgrid.dtd\"");
  pugi::xml_node platform = document.append_child("platform");
  platform.append_attribute("version") = "4.1";
  pugi::xml_node world = platform.append_child("zone");
  world.append_attribute("id") = "cluster";
  world.append_attribute("routing") = "Dijkstra";
  const auto name = [](std::size_t i) { return text("node", i); };
  for (std::size_t i = 0; i < machines.size(); ++i) add_zone(world, machines[i], name(i));
  pugi::xml_node fabric = world.append_child("zone");
  fabric.append_attribute("id") = "fabric";
  fabric.append_attribute("routing") = "Full";
  fabric.append_child("router").append_attribute("id") = "fabric-switch";
  for (std::size_t i = 0; i < machines.size(); ++i) add_link(world, name(i) + "-nics", nic_rate(machines[i]), kOutside);
  for (std::size_t i = 0; i < machines.size(); ++i) {
    pugi::xml_node route = world.append_child("zoneRoute");
    route.append_attribute("src") = name(i).c_str();
    route.append_attribute("dst") = "fabric";
    route.append_attribute("gw_src") = (name(i) + "-out").c_str();
    route.append_attribute("gw_dst") = "fabric-switch";
    route.append_child("link_ctn").append_attribute("id") = (name(i) + "-nics").c_str();
  }
  return detail::printed(document);
}

}  // namespace troupe::topology
