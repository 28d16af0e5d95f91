#include "runtime/topology/outliers.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace troupe::topology {
namespace {

constexpr double kSlowPath = 0.7;
constexpr double kSlowSwitch = 0.5;  // links of 8 lanes above switches of 16 lanes are common

/// Parts of the same make: PCI vendor and device; without these, the kind of part.
using Make = std::tuple<PartKind, std::uint16_t, std::uint16_t>;
Make make_of(const Part& part) {
  return part.pci ? Make{part.kind, part.pci->vendor, part.pci->device} : Make{part.kind, 0, 0};
}

/// Of hwloc's bridges, counted from the top, every second one is a switch's port toward the processor.
bool is_switch(const Machine& machine, PartIndex part) {
  if (machine.parts[part].kind != PartKind::pci_bridge) return machine.parts[part].kind == PartKind::pci_switch;
  std::uint32_t above = 0;
  for (PartIndex i = machine.parts[part].parent; i != kNoPart; i = machine.parts[i].parent)
    above += machine.parts[i].kind == PartKind::pci_bridge;
  return above % 2 == 1;
}

PciLink fastest_behind(const Index& index, PartIndex part) {
  PciLink best;
  std::vector<PartIndex> open{part};
  while (!open.empty()) {
    const PartIndex at = open.back();
    open.pop_back();
    const auto& pci = index.machine().parts[at].pci;
    const bool device = index.gpu_at(at) != nullptr || index.nic_at(at) != nullptr;
    if (device && pci && bytes_per_second(pci->now) > bytes_per_second(best)) best = pci->now;
    open.insert(open.end(), index.children(at).begin(), index.children(at).end());
  }
  return best;
}

bool lanes_down_between(const Index& index, PartIndex from, PartIndex to) {
  const auto& goal = index.machine().parts[to].pci;
  return goal && std::any_of(index.links().begin(), index.links().end(), [&](const AcceleratorLink& link) {
           return link.from == from && link.lanes_down > 0 && link.to == goal->bus;
         });
}

}  // namespace

std::vector<bool> clearly_below(const std::vector<double>& values, double share) {
  std::vector<bool> below(values.size());
  if (values.empty()) return below;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double least = share * sorted[sorted.size() / 2];
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) count += below[i] = values[i] < least;
  if (values.size() - count < 2 * count) below.assign(values.size(), false);
  return below;
}

std::vector<ShortOfLanes> gpus_short_of_lanes(const Index& index) {
  std::map<std::string, std::vector<ShortOfLanes>> models;
  for (const Gpu& gpu : index.machine().gpus) {
    ShortOfLanes& here = models[gpu.model].emplace_back(ShortOfLanes{.gpu = gpu.part});
    for (const AcceleratorLink& link : index.links())
      if (link.from == gpu.part) here.lanes += link.lanes - link.lanes_down;
  }
  std::vector<ShortOfLanes> found;
  for (auto& [model, all] : models) {
    std::vector<double> lanes;
    for (const ShortOfLanes& each : all) lanes.push_back(each.lanes);
    const std::vector<bool> below = clearly_below(lanes, 1);
    std::nth_element(lanes.begin(), lanes.begin() + static_cast<std::ptrdiff_t>(lanes.size() / 2), lanes.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!below[i]) continue;
      all[i].usual = static_cast<std::uint32_t>(lanes[lanes.size() / 2]);
      found.push_back(all[i]);
    }
  }
  return found;
}

std::vector<SlowSwitch> slow_switches(const Index& index) {
  const Machine& machine = index.machine();
  std::map<Make, std::vector<PartIndex>> makes;
  for (PartIndex i = 0; i < machine.parts.size(); ++i)
    if (is_switch(machine, i) && bytes_per_second(machine.parts[i].pci->now) > 0)
      makes[make_of(machine.parts[i])].push_back(i);
  std::vector<SlowSwitch> found;
  for (const auto& [make, switches] : makes) {
    std::vector<double> rates;
    for (const PartIndex part : switches) rates.push_back(bytes_per_second(machine.parts[part].pci->now));
    const std::vector<bool> below = clearly_below(rates, kSlowSwitch);
    const auto fastest = static_cast<std::size_t>(std::max_element(rates.begin(), rates.end()) - rates.begin());
    for (std::size_t i = 0; i < switches.size(); ++i) {
      const PciLink behind = fastest_behind(index, switches[i]);
      if (rates[i] < kSlowSwitch * bytes_per_second(behind))
        found.push_back({switches[i], behind, true});
      else if (below[i] && bytes_per_second(behind) > 0)
        found.push_back({switches[i], machine.parts[switches[fastest]].pci->now, false});
    }
  }
  std::sort(found.begin(), found.end(), [](const SlowSwitch& a, const SlowSwitch& b) { return a.part < b.part; });
  return found;
}

std::vector<bool> slow_paths(const Index& index, const std::vector<Path>& paths,
                             const std::vector<std::pair<PartIndex, PartIndex>>& ends) {
  std::set<PartIndex> switches;
  for (const SlowSwitch& each : slow_switches(index)) switches.insert(each.part);
  std::set<PartIndex> short_of_lanes;
  for (const ShortOfLanes& each : gpus_short_of_lanes(index)) short_of_lanes.insert(each.gpu);
  using Kind = std::tuple<PathClass, Make, Make>;
  std::map<Kind, std::vector<std::size_t>> kinds;
  const auto& parts = index.machine().parts;
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (paths[i].bytes_per_second > 0)
      kinds[{paths[i].path_class, make_of(parts[ends[i].first]), make_of(parts[ends[i].second])}].push_back(i);
  std::vector<bool> slow(paths.size());
  for (const auto& [kind, members] : kinds) {
    std::vector<double> rates;
    for (const std::size_t i : members) rates.push_back(paths[i].bytes_per_second);
    const std::vector<bool> below = clearly_below(rates, kSlowPath);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const auto& [from, to] = ends[members[m]];
      const Path& path = paths[members[m]];
      // The number of lanes between two GPUs is a design decision; but a GPU with fewer lanes than others of its model
      // is slow.
      const bool links = path.path_class == PathClass::link || path.path_class == PathClass::hop;
      const bool lacking = short_of_lanes.contains(from) || short_of_lanes.contains(to);
      slow[members[m]] = (below[m] && (!links || lacking)) || switches.contains(path.slowest_link) ||
                         (links && (lanes_down_between(index, from, to) || lanes_down_between(index, to, from)));
    }
  }
  return slow;
}

}  // namespace troupe::topology
