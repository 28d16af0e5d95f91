#include "runtime/topology/outliers.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace troupe::topology {
namespace {

constexpr double kSlowPath = 0.7;
constexpr double kSlowSwitch = 0.5;  // links of 8 lanes above switches of 16 lanes are common
constexpr double kOneLink = 0.9;     // both ends of a link have one rate; files round it

/// Parts of the same make: PCI vendor and device; without these, the kind of part.
using Make = std::tuple<PartKind, std::uint16_t, std::uint16_t>;
Make make_of(const Part& part) {
  return part.pci ? Make{part.kind, part.pci->vendor, part.pci->device} : Make{part.kind, 0, 0};
}

bool is_bridge(const Part& part) { return part.kind == PartKind::pci_bridge || part.kind == PartKind::pci_switch; }

/// How many of the parts above it pass the test.
std::size_t count_above(const Machine& machine, PartIndex part, bool (*test)(const Part&)) {
  std::size_t above = 0;
  for (PartIndex i = machine.parts[part].parent; i != kNoPart; i = machine.parts[i].parent)
    above += test(machine.parts[i]);
  return above;
}

double rate_of(const Index& index, PartIndex part) { return bytes_per_second(index.machine().parts[part].pci->now); }

/// The GPU or NIC behind a bridge whose PCI link is the fastest; kNoPart: none has a known rate.
PartIndex fastest_behind(const Index& index, PartIndex bridge) {
  PartIndex best = kNoPart;
  std::vector<PartIndex> open{bridge};
  while (!open.empty()) {
    const PartIndex at = open.back();
    open.pop_back();
    const bool device = index.gpu_at(at) != nullptr || index.nic_at(at) != nullptr;
    if (device && index.machine().parts[at].pci && rate_of(index, at) > (best == kNoPart ? 0 : rate_of(index, best)))
      best = at;
    open.insert(open.end(), index.children(at).begin(), index.children(at).end());
  }
  return best;
}

/// How fast the link of a bridge must be at least, given the fastest device behind it.
double least_rate(const Index& index, PartIndex bridge, PartIndex behind) {
  const bool one_link = !is_switch(index.machine(), bridge) && index.machine().parts[behind].parent == bridge;
  return rate_of(index, behind) * (one_link ? kOneLink : kSlowSwitch);
}

/// Whether a bridge below the port is the other end of its link and not faster.
bool other_end_tells(const Index& index, PartIndex bridge) {
  return !is_switch(index.machine(), bridge) && std::ranges::any_of(index.children(bridge), [&](PartIndex i) {
    return is_bridge(index.machine().parts[i]) && rate_of(index, i) > 0 && rate_of(index, i) <= rate_of(index, bridge);
  });
}

/// Bridges with a known rate by depth and make of the fastest device behind them, each with that device.
using Peers = std::map<std::pair<std::size_t, Make>, std::vector<std::pair<PartIndex, PartIndex>>>;
Peers peers_of(const Index& index) {
  const Machine& machine = index.machine();
  Peers peers;
  for (PartIndex i = 0; i < machine.parts.size(); ++i) {
    if (!is_bridge(machine.parts[i]) || rate_of(index, i) <= 0) continue;
    if (const PartIndex behind = fastest_behind(index, i); behind != kNoPart)
      peers[{count_above(machine, i, is_bridge), make_of(machine.parts[behind])}].emplace_back(i, behind);
  }
  return peers;
}

/// Switches that are clearly slower than most others of their make, though something is behind them.
std::vector<SlowBridge> slower_than_their_make(const Index& index) {
  const Machine& machine = index.machine();
  std::map<Make, std::vector<PartIndex>> makes;
  for (PartIndex i = 0; i < machine.parts.size(); ++i)
    if (is_switch(machine, i) && rate_of(index, i) > 0) makes[make_of(machine.parts[i])].push_back(i);
  std::vector<SlowBridge> found;
  for (const auto& [make, switches] : makes) {
    std::vector<double> rates;
    for (const PartIndex part : switches) rates.push_back(rate_of(index, part));
    const std::vector<bool> below = clearly_below(rates, kSlowSwitch);
    const auto fastest = static_cast<std::size_t>(std::max_element(rates.begin(), rates.end()) - rates.begin());
    for (std::size_t i = 0; i < switches.size(); ++i)
      if (below[i] && fastest_behind(index, switches[i]) != kNoPart)
        found.push_back({.part = switches[i], .faster = machine.parts[switches[fastest]].pci->now, .below = false});
  }
  return found;
}

bool lanes_down_between(const Index& index, PartIndex from, PartIndex to) {
  const auto& goal = index.machine().parts[to].pci;
  return goal && std::ranges::any_of(index.links_from(from), [&](const AcceleratorLink* link) {
           return link->lanes_down > 0 && link->to == goal->bus;
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
    for (const AcceleratorLink* const link : index.links_from(gpu.part)) here.lanes += link->lanes - link->lanes_down;
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

bool is_switch(const Machine& machine, PartIndex part) {
  if (machine.parts[part].kind != PartKind::pci_bridge) return machine.parts[part].kind == PartKind::pci_switch;
  return count_above(machine, part, [](const Part& p) { return p.kind == PartKind::pci_bridge; }) % 2 == 1;
}

std::vector<SlowBridge> slow_bridges(const Index& index) {
  std::vector<SlowBridge> found;
  for (const auto& [like, bridges] : peers_of(index))
    for (const auto& [bridge, behind] : bridges)
      if (rate_of(index, bridge) < least_rate(index, bridge, behind) && !other_end_tells(index, bridge))
        found.push_back({.part = bridge, .faster = index.machine().parts[behind].pci->now, .peers = bridges.size()});
  for (SlowBridge& each : slower_than_their_make(index))
    if (std::ranges::find(found, each.part, &SlowBridge::part) == found.end()) found.push_back(std::move(each));
  std::ranges::sort(found, {}, [&](const SlowBridge& each) { return std::pair{rate_of(index, each.part), each.part}; });
  return found;
}

std::vector<bool> slow_paths(const Index& index, const std::vector<Path>& paths,
                             const std::vector<std::pair<PartIndex, PartIndex>>& ends) {
  std::set<PartIndex> slow_links;
  for (const SlowBridge& each : slow_bridges(index)) slow_links.insert(each.part);
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
      const auto is_slow = [&](PartIndex part) { return slow_links.contains(part); };
      slow[members[m]] = (below[m] && (!links || lacking)) || std::ranges::any_of(path.pci_links, is_slow) ||
                         (links && (lanes_down_between(index, from, to) || lanes_down_between(index, to, from)));
    }
  }
  return slow;
}

}  // namespace troupe::topology
