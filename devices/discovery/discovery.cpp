#include "devices/discovery/discovery.hpp"

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
  topology.cpu_quota =
      detail::cpu_quota(read("/proc/self/cgroup").value_or(""), read("/proc/self/mountinfo").value_or(""), read);
  return topology;
}

}  // namespace troupe
