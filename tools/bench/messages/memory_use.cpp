#include "tools/bench/messages/memory_use.hpp"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>

namespace troupe::bench {
namespace {

std::uint64_t heap_bytes() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const auto told = ::mallinfo2();
  return told.uordblks + told.hblkhd;
#else
  return 0;
#endif
}

/// What the kernel tells of a process under `name`.
std::uint64_t status_bytes(pid_t process, std::string_view name) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == name && status >> kib) return kib << 10;
  }
  return 0;
}

}  // namespace

MemoryUse memory_use() { return {resident_bytes(::getpid()), heap_bytes()}; }

std::uint64_t resident_bytes(pid_t process) { return status_bytes(process, "VmRSS:"); }

std::uint64_t peak_resident_bytes(pid_t process) { return status_bytes(process, "VmHWM:"); }

}  // namespace troupe::bench
