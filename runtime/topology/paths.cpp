#include "runtime/topology/paths.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/base/error.hpp"

namespace troupe::topology {
namespace {

constexpr double kAssumedPci = 15.75e9;  // PCI Express 3 x16
/// Modelled rates are not exact: a path of a better class is used if it is at least this much as fast as the fastest.
constexpr double kAboutAsFast = 0.9;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// `part` and the PCI parts above it, from the bottom up; the last one is directly below the processor or host
/// bridge.
std::vector<PartIndex> pci_chain(const Machine& machine, PartIndex part) {
  std::vector<PartIndex> chain;
  for (PartIndex i = part; machine.parts[i].pci && machine.parts[i].kind != PartKind::host_bridge;
       i = machine.parts[i].parent)
    chain.push_back(i);
  return chain;
}

/// The part above a chain: a host bridge, or the package in which a file lists devices.
PartIndex root_of(const Machine& machine, const std::vector<PartIndex>& chain, PartIndex part) {
  return chain.empty() ? part : machine.parts[chain.back()].parent;
}

/// The switches of a chain, from the bottom up. Of hwloc's bridges, counted from the top, every second one (the first
/// is a root port) is a switch's upstream port, and represents the switch.
std::vector<PartIndex> switches_of(const Machine& machine, const std::vector<PartIndex>& chain) {
  std::vector<PartIndex> switches;
  std::uint32_t bridges = 0;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    const PartKind kind = machine.parts[*at].kind;
    if (kind == PartKind::pci_switch || (kind == PartKind::pci_bridge && bridges % 2 == 1)) switches.push_back(*at);
    bridges += kind == PartKind::pci_bridge;
  }
  std::reverse(switches.begin(), switches.end());
  return switches;
}

/// The slowest item on a path, updated while the path is followed.
struct Limit {
  double rate = kNoLimit;
  bool assumed = false;
  std::string what;
  /// `name` makes the item's name, which only the slowest one needs.
  template <class Name>
  void add(double bytes_per_second, Name name) {
    if (bytes_per_second >= rate) return;
    rate = bytes_per_second;
    what = name();
  }
  void add_pci(const Index& index, PartIndex part) {
    const PciAttributes& pci = *index.machine().parts[part].pci;
    const double known = bytes_per_second(pci.now) * kPciEfficiency;
    if (known <= 0) return add_unknown(index, part);
    add(known, [&] { return text("the PCI link of ", label_of(index, part), " (", text_of(pci.now), ")"); });
  }
  void add_unknown(const Index& index, PartIndex part) {
    assumed = true;
    add(kAssumedPci * kPciEfficiency,
        [&] { return text("the PCI link of ", label_of(index, part), " (unknown, assumed to be 8 GT/s x16)"); });
  }
};

void finish(Path& path, Limit limit) {
  path.bytes_per_second = limit.rate == kNoLimit ? 0 : limit.rate;
  path.assumed = limit.assumed;
  path.slowest = std::move(limit.what);
}

/// GB/s between processors, similar to NCCL's tables. Intel's newer ones (from Ice Lake on, model 106) are
/// faster.
double socket_gigabytes(const Index& index) {
  const Machine& machine = index.machine();
  const std::string* vendor = nullptr;
  const std::string* model = nullptr;
  const std::string* architecture = nullptr;
  for (const Part& part : machine.parts) {
    if (part.kind > PartKind::package) continue;
    if (vendor == nullptr) vendor = find_info(part.infos, "CPUVendor");
    if (model == nullptr) model = find_info(part.infos, "CPUModelNumber");
    if (architecture == nullptr) architecture = find_info(part.infos, "Architecture");
  }
  if (architecture != nullptr && architecture->starts_with("ppc64")) return 32;
  if (vendor == nullptr) return 10;
  if (*vendor == "AuthenticAMD") return 16;
  if (*vendor == "GenuineIntel")
    return model != nullptr && (model->size() > 3 || (model->size() == 3 && *model >= "106")) ? 22 : 10;
  return 6;
}

struct Between {
  const Index& index;
  PartIndex from;
  PartIndex to;
  const Machine& machine = index.machine();

  /// The path over PCI and the processors, which always exists.
  Path over_pci() const {
    const auto up = pci_chain(machine, from);
    const auto down = pci_chain(machine, to);
    // The part where both chains meet does not count as a link: it is the switch itself, or the processor.
    auto a = up.size();
    auto b = down.size();
    while (a > 0 && b > 0 && up[a - 1] == down[b - 1]) --a, --b;
    Path path;
    Limit limit;
    path.pci_links.assign(up.begin(), up.begin() + static_cast<std::ptrdiff_t>(a));
    path.pci_links.insert(path.pci_links.end(), down.begin(), down.begin() + static_cast<std::ptrdiff_t>(b));
    for (const PartIndex part : path.pci_links) limit.add_pci(index, part);
    for (const PartIndex end : {from, to})
      if (machine.parts[end].kind == PartKind::misc && index.nic_at(end) != nullptr) limit.add_unknown(index, end);
    path.path_class = class_of(up, down, a < up.size());
    if (path.path_class == PathClass::sys) {
      limit.add(socket_gigabytes(index) * 1e9, [] { return "the link between processors"; });
    }
    for (std::size_t i = 1; i < a; ++i) path.via.push_back(up[i]);
    if (path.path_class == PathClass::sys) add_processors(path);
    // If one end is a switch above the other, they meet in that end.
    if (a > 0 && b > 0 && a < up.size()) path.via.push_back(up[a]);
    for (std::size_t i = b; i > 1; --i) path.via.push_back(down[i - 1]);
    finish(path, std::move(limit));
    return path;
  }

  /// The NUMA nodes between which the path crosses; where they are not told, the packages.
  void add_processors(Path& path) const {
    const bool numa = index.numa_of(from) != kNoPart && index.numa_of(to) != kNoPart;
    for (const PartIndex end : {from, to}) {
      const PartIndex near = numa ? index.numa_of(end) : index.package_of(end);
      if (near != kNoPart && near != end && (path.via.empty() || path.via.back() != near)) path.via.push_back(near);
    }
  }

  PathClass class_of(const std::vector<PartIndex>& up, const std::vector<PartIndex>& down, bool meet_below_host) const {
    if (meet_below_host) {
      const auto a = switches_of(machine, up);
      const auto b = switches_of(machine, down);
      std::size_t shared = 0;
      while (shared < a.size() && shared < b.size() && a[a.size() - 1 - shared] == b[b.size() - 1 - shared]) ++shared;
      const std::size_t passed = (a.size() - shared) + (b.size() - shared) + (shared > 0);
      return passed <= 1 ? PathClass::pix : PathClass::pxb;
    }
    const PartIndex near = index.numa_of(from);
    const PartIndex far = index.numa_of(to);
    if (up.empty() != down.empty()) return near == far && near != kNoPart ? PathClass::phb : PathClass::sys;
    if (root_of(machine, up, from) == root_of(machine, down, to)) return PathClass::phb;
    if (near != kNoPart && near == far) return PathClass::node;
    const PartIndex package = index.package_of(from);
    if (near == kNoPart && far == kNoPart) return package == index.package_of(to) ? PathClass::node : PathClass::sys;
    return PathClass::sys;
  }
};

double rate_of(const Index& index, const AcceleratorLink& link) {
  if (link.lanes == 0) return static_cast<double>(link.bytes_per_second);
  const double share = static_cast<double>(link.lanes - link.lanes_down) / link.lanes;
  if (link.bytes_per_second > 0) return static_cast<double>(link.bytes_per_second) * share;
  const Gpu* const gpu = index.gpu_at(link.from);
  return lane_gigabytes(link.kind, gpu != nullptr ? gpu->architecture : "") * 1e9 * (link.lanes - link.lanes_down);
}

struct Reach {
  double rate = 0;
  std::uint32_t lanes = 0;
  AcceleratorLink::Kind kind = AcceleratorLink::Kind::nvlink;
};

bool leads_to_nvswitch(const AcceleratorLink& link) { return link.to_class == kNvSwitchClass; }

/// Links from `from` to `to`, or to switches over which `to` is reached. The NVSwitches of a machine are one fabric,
/// though no source tells of the links between them: of a DGX-2's GPUs half have links to other switches than the rest,
/// and all reach each other at the full rate. NCCL takes them as one switch, too.
Reach reach(const Index& index, PartIndex from, PartIndex to) {
  Reach direct;
  Reach switched;
  const auto& goal = index.machine().parts[to].pci;
  for (const AcceleratorLink* const each : index.links_from(from)) {
    const AcceleratorLink& link = *each;
    if (link.to.empty()) continue;
    const bool here = goal && link.to == goal->bus;
    if (!here) {
      const PartIndex end = index.at_bus(link.to);
      if (end != kNoPart && index.gpu_at(end) != nullptr) continue;  // a path through another GPU is of another class
      const bool shared = std::ranges::any_of(index.links_from(to), [&](const AcceleratorLink* l) {
        return l->to == link.to || (leads_to_nvswitch(*l) && leads_to_nvswitch(link));
      });
      if (!shared) continue;
    }
    Reach& sum = here ? direct : switched;
    sum.rate += rate_of(index, link);
    sum.lanes += link.lanes - link.lanes_down;
    sum.kind = link.kind;
  }
  return direct.rate > 0 ? direct : switched;
}

std::optional<Path> over_links(const Index& index, PartIndex from, PartIndex to) {
  const Reach there = reach(index, from, to);
  const Reach back = reach(index, to, from);
  const Reach& least = back.rate > 0 && back.rate < there.rate ? back : there;
  if (least.rate <= 0) return std::nullopt;
  Path path{.path_class = PathClass::link, .link = least.kind, .lanes = least.lanes, .bytes_per_second = least.rate};
  path.slowest = text("its ", name_of(least.kind), " lanes");
  return path;
}

/// The fastest path through one other GPU.
std::optional<Path> over_a_gpu(const Index& index, PartIndex from, PartIndex to) {
  std::optional<Path> best;
  if (index.links_from(from).empty() || index.links_from(to).empty()) return best;
  for (const Gpu& gpu : index.machine().gpus) {
    if (gpu.part == from || gpu.part == to) continue;
    const auto first = over_links(index, from, gpu.part);
    const auto second = first ? over_links(index, gpu.part, to) : std::nullopt;
    if (!second) continue;
    const Path& least = first->bytes_per_second < second->bytes_per_second ? *first : *second;
    if (best && best->bytes_per_second >= least.bytes_per_second) continue;
    best = least;
    best->path_class = PathClass::hop;
    best->via = {gpu.part};
  }
  return best;
}

std::optional<Path> over_c2c(const Index& index, PartIndex gpu, PartIndex numa) {
  if (index.machine().parts[numa].kind != PartKind::numa || index.numa_of(gpu) != numa) return std::nullopt;
  for (const AcceleratorLink* const link : index.links_from(gpu)) {
    if (link->kind != AcceleratorLink::Kind::c2c) continue;
    Path path{.path_class = PathClass::c2c,
              .link = link->kind,
              .lanes = link->lanes,
              .bytes_per_second = rate_of(index, *link)};
    path.slowest = "its C2C link";
    return path;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(PathClass path_class) noexcept {
  static constexpr std::array<std::string_view, 10> kNames{"X",   "NVL", "NVB",  "C2C", "PIX",
                                                           "PXB", "PHB", "NODE", "SYS", "none"};
  return kNames[static_cast<std::size_t>(path_class)];
}

std::string text_of(const Path& path) {
  if (path.path_class != PathClass::link) return std::string{name_of(path.path_class)};
  const std::string_view word = path.link == AcceleratorLink::Kind::xgmi ? "XG" : "NV";
  return path.lanes > 0 ? text(word, path.lanes) : text(word, 'L');
}

double lane_gigabytes(AcceleratorLink::Kind kind, std::string_view architecture) noexcept {
  if (kind == AcceleratorLink::Kind::xgmi) {
    if (architecture.starts_with("gfx94") || architecture.starts_with("gfx95")) return 48;
    return architecture == "gfx906" || architecture == "gfx908" ? 24 : 36;
  }
  if (architecture.starts_with("sm_6")) return 18;
  if (architecture.starts_with("sm_9")) return 20.6;
  if (architecture.starts_with("sm_10") || architecture.starts_with("sm_12")) return 40.1;
  return 20;
}

std::vector<Path> paths_between(const Index& index, PartIndex from, PartIndex to) {
  if (from == to) return {{.path_class = PathClass::self}};
  std::vector<Path> paths;
  const auto take = [&](std::optional<Path> path) {
    if (path) paths.push_back(std::move(*path));
  };
  if (index.gpu_at(from) != nullptr && index.gpu_at(to) != nullptr) {
    take(over_links(index, from, to));
    if (paths.empty()) take(over_a_gpu(index, from, to));
  }
  take(over_c2c(index, from, to));
  take(over_c2c(index, to, from));
  paths.push_back(Between{index, from, to}.over_pci());
  std::stable_sort(paths.begin(), paths.end(), [](const Path& a, const Path& b) {
    return a.bytes_per_second != b.bytes_per_second ? a.bytes_per_second > b.bytes_per_second
                                                    : a.path_class < b.path_class;
  });
  const double least = kAboutAsFast * paths.front().bytes_per_second;
  const auto slower =
      std::find_if(paths.begin(), paths.end(), [&](const Path& p) { return p.bytes_per_second < least; });
  std::stable_sort(paths.begin(), slower, [](const Path& a, const Path& b) { return a.path_class < b.path_class; });
  return paths;
}

Path best_path(const Index& index, PartIndex from, PartIndex to) { return paths_between(index, from, to).front(); }

bool end_is_known(const Index& index, const AcceleratorLink& link) {
  if (link.kind == AcceleratorLink::Kind::c2c || leads_to_nvswitch(link)) return true;
  const PartIndex end = index.at_bus(link.to);
  if (end != kNoPart) return end != link.from;
  const std::uint32_t base_class = link.to_class >> 16;
  return link.to_class != 0 && base_class != 0x03 && base_class != 0x12;  // a GPU would be a part
}

bool is_whole_nic(const Machine& machine, const Nic& nic) {
  const Part& part = machine.parts[nic.part];
  return part.kind == PartKind::misc || (part.pci && part.pci->physical_function.empty());
}

bool is_nearer(const Path& a, const Path& b) {
  if (a.path_class != b.path_class) return a.path_class < b.path_class;
  if (a.bytes_per_second != b.bytes_per_second) return a.bytes_per_second > b.bytes_per_second;
  // Beyond a host bridge all are equally far.
  return a.path_class <= PathClass::pxb && a.pci_links.size() < b.pci_links.size();
}

PartIndex nearest_nic(const Index& index, PartIndex gpu) {
  PartIndex best = kNoPart;
  Path path;
  for (const Nic& nic : index.machine().nics) {
    if (!is_whole_nic(index.machine(), nic)) continue;
    Path here = best_path(index, gpu, nic.part);
    if (best == kNoPart || is_nearer(here, path)) best = nic.part, path = std::move(here);
  }
  return best;
}

}  // namespace troupe::topology
