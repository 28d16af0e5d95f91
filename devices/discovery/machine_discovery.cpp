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

/// Reads hwloc's view of this host through its XML: one reader serves files and this host.
Machine parts_of_this_host() {
  hwloc_topology_t raw = nullptr;
  TROUPE_CHECK_ERRNO(hwloc_topology_init(&raw) == 0, Code::environment, "hwloc cannot start to look at this host");
  const std::unique_ptr<hwloc_topology, DestroyTopology> owner{raw};
  // The OpenCL and GL components would wake drivers, and x86 would move this thread to every core.
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

/// Notes the bus ids of GPUs, NICs and devices of unknown class in NCCL_TOPO_FILE that this machine does not have.
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
    machine.system.nccl_file_not_found = {""};  // a rule of the doctor reports it
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

}  // namespace troupe
