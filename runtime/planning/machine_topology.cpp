#include "runtime/planning/machine_topology.hpp"

#include <algorithm>
#include <map>

#include "runtime/topology/paths.hpp"

namespace troupe {
namespace {

namespace topo = troupe::topology;
using topo::kNoPart;
using topo::PartIndex;
using topo::PartKind;

class Conversion {
 public:
  explicit Conversion(const topo::Machine& machine) : machine_(machine), index_(machine) {}

  Topology topology() {
    out_.host = machine_.host;
    out_.cpu_quota = machine_.limits.cpu_quota.value_or(0);
    const std::uint64_t memory = machine_.limits.memory_bytes.value_or(0);
    out_.memory_limit_bytes = memory == ~std::uint64_t{0} ? 0 : memory;
    add_numa();
    add_cores();
    add_caches();
    for (const topo::Part& part : machine_.parts)
      if (const std::string* const model = topo::find_info(part.infos, "CPUModel"); model && out_.cpu_model.empty())
        out_.cpu_model = *model;
    add_nics();
    add_accelerators();
    return std::move(out_);
  }

 private:
  const topo::Part& part(PartIndex at) const { return machine_.parts[at]; }
  bool is_l3(PartIndex at) const { return part(at).kind == PartKind::cache && part(at).cache->level == 3; }
  std::int32_t numa_near(PartIndex at) const {
    const auto found = numa_.find(index_.numa_of(at));
    return found == numa_.end() ? -1 : static_cast<std::int32_t>(found->second);
  }

  void add_numa() {
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      if (part(i).kind != PartKind::numa) continue;
      numa_.emplace(i, static_cast<std::uint32_t>(out_.numa.size()));
      out_.memory_bytes += part(i).bytes;
      out_.numa.push_back({static_cast<std::uint32_t>(std::max(part(i).os_index, 0)), part(i).bytes});
    }
  }

  void add_cores() {
    const topo::Counts counts = topo::count(machine_);
    if (counts.cores == 0 && counts.pus == 0) return add_processors_of_packages();
    unit_ = counts.cores > 0 ? PartKind::core : PartKind::pu;
    std::map<PartIndex, std::uint32_t> l3;  // numbered consecutively
    for (PartIndex i = 0; i < machine_.parts.size(); ++i)
      if (is_l3(i)) l3.emplace(i, static_cast<std::uint32_t>(l3.size()));
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      if (part(i).kind != unit_) continue;
      Core core = core_near(i, index_.number(i));
      add_allowed(core, index_.cpus(i));
      for (PartIndex at = part(i).parent; at != kNoPart; at = part(at).parent)
        if (const auto found = l3.find(at); found != l3.end()) core.l3 = found->second;
      take(i, std::move(core));
    }
  }

  /// The form of NCCL's files: a package with a set of processors.
  void add_processors_of_packages() {
    topo::CpuSet known;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      if (part(i).kind != PartKind::package) continue;
      for (const std::uint32_t cpu : part(i).cpus.numbers()) {
        if (known.has(cpu)) continue;
        known.add(cpu);
        topo::CpuSet one;
        one.add(cpu);
        Core core = core_near(i, static_cast<std::uint32_t>(out_.cores.size()));
        add_allowed(core, one);
        take(i, std::move(core));
      }
    }
  }

  Core core_near(PartIndex at, std::uint32_t number) const {
    Core core{.index = number, .numa = static_cast<std::uint32_t>(std::max(numa_near(at), 0))};
    if (const PartIndex package = index_.package_of(at); package != kNoPart) core.package = index_.number(package);
    return core;
  }
  void add_allowed(Core& core, const topo::CpuSet& cpus) const {
    const topo::CpuSet& allowed = machine_.limits.allowed;
    for (const std::uint32_t cpu : cpus.numbers())
      if (allowed.empty() || allowed.has(cpu)) core.cpus.push_back(cpu);
  }
  void take(PartIndex at, Core core) {
    if (core.cpus.empty()) return;
    if (out_.cores.empty()) first_core_ = at;
    out_.cores.push_back(std::move(core));
  }

  /// A core's share of its level 2 cache, and the whole level 3 cache of its package.
  void add_caches() {
    if (first_core_ == kNoPart) return;
    for (PartIndex i = 0; i < machine_.parts.size(); ++i) {
      if (part(i).kind != PartKind::cache) continue;
      if (part(i).cache->level == 3 && index_.package_of(i) == index_.package_of(first_core_))
        out_.l3_bytes += part(i).bytes;
      if (part(i).cache->level != 2 || !index_.cpus(i).includes(index_.cpus(first_core_))) continue;
      std::uint64_t cores = 0;
      for (PartIndex each = 0; each < machine_.parts.size(); ++each)
        cores += part(each).kind == unit_ && index_.cpus(i).includes(index_.cpus(each));
      out_.l2_bytes = part(i).bytes / std::max<std::uint64_t>(cores, 1);
    }
  }

  void add_nics() {
    for (const topo::Nic& nic : machine_.nics) {
      const bool is_part_of_another = !topo::is_whole_nic(machine_, nic) && part(nic.part).pci &&
                                      index_.at_bus(part(nic.part).pci->physical_function) != kNoPart;
      if (is_part_of_another) continue;
      const auto active = [](const topo::RdmaPort& port) { return port.active.value_or(true); };
      const auto port = std::find_if(nic.ports.begin(), nic.ports.end(), active);
      for (const topo::Interface& interface : nic.interfaces) {
        Nic flat{.name = interface.name, .numa = numa_near(nic.part), .bits_per_second = interface.bits_per_second};
        flat.up = interface.up.value_or(true) || (port != nic.ports.end() && port->active.has_value());
        if (port != nic.ports.end()) flat.infiniband = port->device;
        add_nic(nic.part, std::move(flat));
      }
      if (!nic.interfaces.empty()) continue;
      for (const topo::RdmaPort& each : nic.ports)
        add_nic(nic.part, {.name = each.device,
                           .numa = numa_near(nic.part),
                           .bits_per_second = each.bits_per_second,
                           .up = active(each),
                           .infiniband = active(each) ? each.device : std::string{}});
    }
    std::sort(out_.nics.begin(), out_.nics.end(), [](const Nic& a, const Nic& b) { return a.name < b.name; });
  }
  void add_nic(PartIndex at, Nic nic) {
    if (std::any_of(out_.nics.begin(), out_.nics.end(), [&](const Nic& n) { return n.name == nic.name; })) return;
    if (nic.up) up_.emplace_back(at, nic.name);
    out_.nics.push_back(std::move(nic));
  }

  void add_accelerators() {
    for (const topo::Gpu& gpu : machine_.gpus) {
      Accelerator made{.name = topo::label_of(index_, gpu.part),
                       .model = gpu.model,
                       .memory_bytes = gpu.memory_bytes,
                       .numa = numa_near(gpu.part),
                       .nearest_nics = {},
                       .bus = part(gpu.part).pci ? part(gpu.part).pci->bus : std::string{},
                       .vendor = gpu.vendor};
      topo::Path nearest;
      for (const auto& [at, name] : up_) {
        const topo::Path here = topo::best_path(index_, gpu.part, at);
        const auto rank = [](const topo::Path& path) { return std::pair{path.path_class, -path.bytes_per_second}; };
        if (!made.nearest_nics.empty() && rank(nearest) < rank(here)) continue;
        if (made.nearest_nics.empty() || rank(here) < rank(nearest)) made.nearest_nics.clear(), nearest = here;
        made.nearest_nics.push_back(name);
      }
      std::sort(made.nearest_nics.begin(), made.nearest_nics.end());
      out_.accelerators.push_back(std::move(made));
    }
  }

  const topo::Machine& machine_;
  const topo::Index index_;
  std::map<PartIndex, std::uint32_t> numa_;            // part to index in out_.numa
  std::vector<std::pair<PartIndex, std::string>> up_;  // NICs
  PartKind unit_ = PartKind::core;
  PartIndex first_core_ = kNoPart;
  Topology out_;
};

}  // namespace

Topology planning_topology(const topology::Machine& machine) { return Conversion{machine}.topology(); }

}  // namespace troupe
