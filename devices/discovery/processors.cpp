#include "devices/discovery/detail/processors.hpp"

#include <hwloc.h>

#include <cerrno>
#include <map>
#include <memory>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe::detail {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using OwnTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

OwnTopology load() {
  hwloc_topology_t raw = nullptr;
  TROUPE_CHECK_ERRNO(hwloc_topology_init(&raw) == 0, Code::environment, "hwloc cannot start to look at this node");
  OwnTopology topology{raw};
  // Devices are not needed: OpenCL and GL would wake drivers, and x86 would move this thread to every core.
  for (const char* component : {"opencl", "gl", "x86"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  TROUPE_CHECK_ERRNO(hwloc_topology_load(raw) == 0, Code::environment,
                     "hwloc cannot look at this node's processors; is /sys mounted?");
  return topology;
}

/// The processors on which this process may run: allowed by its control group and the affinity of any of its threads.
Bitmap usable(hwloc_topology_t topology) {
  Bitmap set{hwloc_bitmap_alloc()};
  TROUPE_CHECK(set != nullptr, Code::environment, "hwloc cannot make a set of processors: no memory");
  if (hwloc_get_cpubind(topology, set.get(), HWLOC_CPUBIND_PROCESS) != 0 || hwloc_bitmap_iszero(set.get())) {
    hwloc_bitmap_fill(set.get());  // hwloc has no answer: use those that the control group allows
  }
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(topology));
  return set;
}

/// Adds NUMA nodes in hwloc's order. Returns their indices by the system's number.
std::map<unsigned, std::uint32_t> add_numa(Topology& out, hwloc_topology_t topology) {
  std::map<unsigned, std::uint32_t> index;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    index.emplace(node->os_index, static_cast<std::uint32_t>(out.numa.size()));
    out.numa.push_back({node->os_index, node->attr->numanode.local_memory});
  }
  return index;
}

/// A core's share of the data cache at `level`: its size divided by the number of cores that use it.
std::uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_t core, hwloc_obj_type_t level) {
  const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, level, core);
  if (cache == nullptr) return 0;
  const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cache->cpuset, core->type);
  return cache->attr->cache.size / static_cast<std::uint64_t>(cores > 0 ? cores : 1);
}

std::uint64_t l3_of_package(hwloc_topology_t topology, hwloc_obj_t core) {
  const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, core);
  std::uint64_t sum = 0;
  for (hwloc_obj_t cache = nullptr;
       (cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, cache)) != nullptr;) {
    if (package == nullptr || hwloc_bitmap_isincluded(cache->cpuset, package->cpuset)) sum += cache->attr->cache.size;
  }
  return sum;
}

Core make_core(hwloc_topology_t topology, hwloc_obj_t object, hwloc_const_cpuset_t allowed,
               const std::map<unsigned, std::uint32_t>& numa) {
  Core core;
  core.index = object->logical_index;
  for (int cpu = -1; (cpu = hwloc_bitmap_next(object->cpuset, cpu)) >= 0;) {
    if (hwloc_bitmap_isset(allowed, static_cast<unsigned>(cpu))) core.cpus.push_back(static_cast<std::uint32_t>(cpu));
  }
  for (int node = -1; (node = hwloc_bitmap_next(object->nodeset, node)) >= 0;) {
    const auto at = numa.find(static_cast<unsigned>(node));
    if (at == numa.end()) continue;
    core.numa = at->second;  // the lowest: memory of the processors is numbered before that of devices
    break;
  }
  if (const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object)) {
    core.package = package->logical_index;
  }
  if (const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, object)) {
    core.l3 = cache->logical_index;
  }
  return core;
}

std::string processor_name(hwloc_topology_t topology) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, 0);
    const char* name = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
    if (name != nullptr) return name;
  }
  return {};
}

}  // namespace

void add_processors(Topology& out) {
  const OwnTopology owner = load();
  const hwloc_topology_t topology = owner.get();
  const Bitmap allowed = usable(topology);
  const auto numa = add_numa(out, topology);
  out.cpu_model = processor_name(topology);
  // If the system reports no cores, every processor counts as a core.
  const auto type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    Core core = make_core(topology, object, allowed.get(), numa);
    if (core.cpus.empty()) continue;
    if (out.cores.empty()) {
      out.l2_bytes = cache_bytes(topology, object, HWLOC_OBJ_L2CACHE);
      out.l3_bytes = l3_of_package(topology, object);
    }
    out.cores.push_back(std::move(core));
  }
  TROUPE_CHECK(!out.cores.empty(), Code::environment, "this process may run on none of the processors that hwloc sees");
}

}  // namespace troupe::detail
