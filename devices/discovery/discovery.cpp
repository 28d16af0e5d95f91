#include "devices/discovery/discovery.hpp"

#include <unistd.h>

#include "devices/discovery/detail/cgroup.hpp"
#include "devices/discovery/detail/files.hpp"
#include "devices/discovery/detail/nics.hpp"
#include "devices/discovery/detail/processors.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"

namespace troupe {
NodeIdentity own_node_identity() { return {boot_id(), network_namespace()}; }

Topology discover() {
  Topology topology;
  topology.identity = own_node_identity();
  topology.host = host_name();
  detail::add_processors(topology);
  topology.nics = detail::find_nics(topology.numa);
  const auto read = [](const std::string& path) { return detail::read_small_file(path); };
  const std::string groups = read("/proc/self/cgroup").value_or("");
  const std::string mounts = read("/proc/self/mountinfo").value_or("");
  topology.cpu_quota = detail::cpu_quota(groups, mounts, read);
  const auto at_least_zero = [](long count) { return count > 0 ? static_cast<std::uint64_t>(count) : 0; };
  topology.memory_bytes = at_least_zero(::sysconf(_SC_PHYS_PAGES)) * at_least_zero(::sysconf(_SC_PAGESIZE));
  const std::uint64_t limit = detail::memory_limit(groups, mounts, read);
  topology.memory_limit_bytes = limit == ~std::uint64_t{0} ? 0 : limit;
  return topology;
}

}  // namespace troupe
