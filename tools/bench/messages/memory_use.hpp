#pragma once

#include <sys/types.h>

#include <cstdint>

namespace troupe::bench {

struct MemoryUse {
  std::uint64_t resident_bytes = 0;  // VmRSS, with what is shared
  std::uint64_t heap_bytes = 0;      // that malloc has given out; 0: its implementation does not tell
};

/// Of this process, now.
MemoryUse memory_use();
/// VmRSS of another process of this host; 0: it has gone.
std::uint64_t resident_bytes(pid_t process);
/// VmHWM, the most that it ever had; the same.
std::uint64_t peak_resident_bytes(pid_t process);
inline double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace troupe::bench
