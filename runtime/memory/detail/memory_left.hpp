#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// How much more memory a process may take, and the name of the limit, for people.
struct MemoryLeft {
  std::uint64_t size_bytes = 0;
  std::string limit;  // "MemAvailable of /proc/meminfo", "memory.max of cgroup /x"
};

/// The lowest of the host's available memory and the limits of this process's cgroups (v2). A value that cannot be read
/// counts as no limit.
MemoryLeft memory_left();

}  // namespace troupe
