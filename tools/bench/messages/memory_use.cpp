#include "tools/bench/messages/memory_use.hpp"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>

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

}  // namespace

MemoryUse memory_use() { return {resident_bytes(::getpid()), heap_bytes()}; }

std::uint64_t resident_bytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib << 10;
  }
  return 0;
}

}  // namespace troupe::bench
