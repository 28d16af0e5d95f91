#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/planning/topology.hpp"

namespace troupe {

/// Where a process of a job runs, as it reported after it had proved that it knows the job's secret.
struct ProcessLocation {
  NodeIdentity node;
  std::uint64_t pid_namespace = 0;     // inode
  std::vector<std::string> addresses;  // numeric: IP addresses from which it may connect, loopback included
};

}  // namespace troupe
