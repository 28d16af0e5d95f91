#include "devices/discovery/discovery.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "devices/discovery/detail/cgroup.hpp"
#include "devices/discovery/detail/files.hpp"
#include "devices/discovery/detail/nics.hpp"
#include "devices/discovery/detail/processors.hpp"
#include "runtime/error.hpp"

namespace troupe {
namespace {

std::uint64_t namespace_inode(const char* path) {
  struct stat facts {};
  TROUPE_CHECK_ERRNO(::stat(path, &facts) == 0, Code::environment, "cannot look at ", path, "; is /proc mounted?");
  return facts.st_ino;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::uint64_t own_pid_namespace() { return namespace_inode("/proc/self/ns/pid"); }

NodeIdentity own_node_identity() {
  constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
  const auto boot_id = detail::read_small_file(kBootId);
  TROUPE_CHECK(boot_id.has_value() && !boot_id->empty(), Code::environment, "cannot read ", kBootId,
               ", by which processes see whether they share a host; is /proc mounted?");
  return {*boot_id, namespace_inode("/proc/thread-self/ns/net")};  // a thread may have entered another one
}

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
