#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// How much memory a process may still take, and by what limit, for people.
struct MemoryLeft {
  std::uint64_t size_bytes = 0;
  std::string limit;  // "MemAvailable of /proc/meminfo", "memory.max of cgroup /x"
};

/// The tightest of the host's available memory and the limits of this process's cgroups (v2). What cannot be read
/// limits nothing.
MemoryLeft memory_left();

}  // namespace troupe
