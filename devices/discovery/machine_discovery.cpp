#include "devices/discovery/machine_discovery.hpp"

#include <hwloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/timex.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "devices/discovery/detail/cgroup.hpp"
#include "devices/discovery/detail/files.hpp"
#include "devices/discovery/detail/nvml.hpp"
#include "devices/discovery/detail/system_files.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/topology/hwloc_xml.hpp"
#include "runtime/topology/nccl_xml.hpp"
#include "runtime/topology/reading.hpp"

namespace troupe {
namespace {

using namespace topology;

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};

/// What hwloc sees, through its own XML: one reader for files and for this host.
Machine parts_of_this_host() {
  hwloc_topology_t raw = nullptr;
  TROUPE_CHECK_ERRNO(hwloc_topology_init(&raw) == 0, Code::environment, "hwloc cannot start to look at this host");
  const std::unique_ptr<hwloc_topology, DestroyTopology> owner{raw};
  // OpenCL and GL would wake drivers, and x86 would move this thread to every core in turn.
  for (const char* component : {"opencl", "gl", "x86"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  char* xml = nullptr;
  int size = 0;
  TROUPE_CHECK_ERRNO(hwloc_topology_load(raw) == 0 && hwloc_topology_export_xmlbuffer(raw, &xml, &size, 0) == 0,
                     Code::environment, "hwloc cannot look at this host; is /sys mounted?");
  const std::string text{xml};
  hwloc_free_xmlbuffer(raw, xml);
  return machine_from_hwloc_xml(text, "what hwloc sees of this host");
}

std::optional<std::uint64_t> bound(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? ~std::uint64_t{0} : std::uint64_t{limit.rlim_cur};
}

void add_limits(Machine& machine) {
  const auto read = [](const std::string& path) { return detail::read_small_file(path); };
  const std::string groups = read("/proc/self/cgroup").value_or("");
  const std::string mounts = read("/proc/self/mountinfo").value_or("");
  Limits& limits = machine.limits;
  limits.cpu_quota = detail::cpu_quota(groups, mounts, read);
  limits.memory_bytes = detail::memory_limit(groups, mounts, read);
  limits.locked_bytes = bound(RLIMIT_MEMLOCK);
  limits.open_files = bound(RLIMIT_NOFILE);
  CpuSet allowed;
  CpuSet all;
  for (const Part& part : machine.parts)
    if (part.kind == PartKind::pu) all.add(static_cast<std::uint32_t>(part.os_index));
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) allowed.add(cpu);
  limits.allowed = allowed == all ? CpuSet{} : allowed;
}

/// Bus ids of GPUs, NICs and devices of unknown class in NCCL_TOPO_FILE that this machine does not have.
void check_nccl_file(Machine& machine) {
  const char* const file = std::getenv("NCCL_TOPO_FILE");
  if (file == nullptr) return;
  machine.system.nccl_file = file;
  try {
    const Machine told = machine_from_nccl_xml(read_topology_file(file), file);
    const Index here{machine};
    for (const Part& part : told.parts)
      if (part.kind == PartKind::pci_function && here.at_bus(part.pci->bus) == kNoPart)
        machine.system.nccl_file_not_found.push_back(part.pci->bus);
  } catch (const Error&) {
    machine.system.nccl_file_not_found = {""};  // a rule says so
  }
}

}  // namespace

Machine discover_machine(const MachineSources& sources) {
  Machine machine = parts_of_this_host();
  if (machine.host.empty()) machine.host = host_name();
  detail::add_pci_files(machine, sources.root);
  detail::add_nic_files(machine, sources.root, sources.watch);
  if (!sources.nvml.empty()) detail::add_nvml(machine, sources.nvml);
  detail::add_system_files(machine, sources.root);
  add_limits(machine);
  check_nccl_file(machine);
  timex clock{};
  if (const int state = ::adjtimex(&clock); state >= 0) machine.system.clock_synchronized = state != TIME_ERROR;
  detail::add_ranks(machine, sources.root);
  return machine;
}

Topology planning_topology(const Machine& machine) {
  Topology out;
  const Index index{machine};
  const auto& parts = machine.parts;
  out.host = machine.host;
  out.cpu_quota = machine.limits.cpu_quota.value_or(0);
  std::map<PartIndex, std::uint32_t> numa;
  for (PartIndex i = 0; i < parts.size(); ++i) {
    if (parts[i].kind != PartKind::numa) continue;
    numa.emplace(i, static_cast<std::uint32_t>(out.numa.size()));
    out.numa.push_back({static_cast<std::uint32_t>(std::max(parts[i].os_index, 0)), parts[i].bytes});
  }
  const PartKind unit = count(machine).cores > 0 ? PartKind::core : PartKind::pu;
  for (PartIndex i = 0; i < parts.size(); ++i) {
    if (parts[i].kind != unit) continue;
    Core core{.index = index.number(i)};
    for (const std::uint32_t cpu : index.cpus(i).numbers())
      if (machine.limits.allowed.empty() || machine.limits.allowed.has(cpu)) core.cpus.push_back(cpu);
    if (core.cpus.empty()) continue;
    if (const auto at = numa.find(index.numa_of(i)); at != numa.end()) core.numa = at->second;
    if (const PartIndex package = index.package_of(i); package != kNoPart) core.package = index.number(package);
    out.cores.push_back(std::move(core));
    if (out.cores.size() > 1) continue;
    for (PartIndex cache = 0; cache < parts.size(); ++cache) {
      if (parts[cache].kind != PartKind::cache || !index.cpus(cache).includes(index.cpus(i))) continue;
      const auto& below = index.cpus(cache);
      const auto cores = static_cast<std::uint64_t>(std::count_if(parts.begin(), parts.end(), [&](const Part& p) {
        return p.kind == unit && below.includes(index.cpus(static_cast<PartIndex>(&p - parts.data())));
      }));
      if (parts[cache].cache->level == 2) out.l2_bytes = parts[cache].bytes / std::max<std::uint64_t>(cores, 1);
    }
    for (PartIndex cache = 0; cache < parts.size(); ++cache)
      if (parts[cache].kind == PartKind::cache && parts[cache].cache->level == 3 &&
          index.package_of(cache) == index.package_of(i))
        out.l3_bytes += parts[cache].bytes;
  }
  for (const Part& part : parts)
    if (const std::string* const model = find_info(part.infos, "CPUModel"); model != nullptr && out.cpu_model.empty())
      out.cpu_model = *model;
  for (const topology::Nic& nic : machine.nics) {
    for (const Interface& interface : nic.interfaces) {
      troupe::Nic flat{
          .name = interface.name, .bits_per_second = interface.bits_per_second, .up = interface.up.value_or(true)};
      if (const auto at = numa.find(index.numa_of(nic.part)); at != numa.end())
        flat.numa = static_cast<std::int32_t>(at->second);
      if (!nic.ports.empty()) flat.infiniband = nic.ports.front().device;
      out.nics.push_back(std::move(flat));
    }
  }
  std::sort(out.nics.begin(), out.nics.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

}  // namespace troupe
