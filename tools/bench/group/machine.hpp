#pragma once

#include <sys/types.h>

#include <cstdint>

namespace troupe::bench {

/// Of a live process, in MB of 1e6 bytes.
struct ResidentMemory {
  double all = 0;  // with the pages of programs and libraries, which processes share
  double own = 0;  // anonymous and shared memory
};
/// Zeros when it is not alive.
ResidentMemory resident_memory(pid_t process);

/// How busy this machine's CPUs are, by whomever.
class Busyness {
 public:
  Busyness() : begin_(now()) {}
  /// 0 to 1, of all CPUs, since it was made.
  double so_far() const;

 private:
  struct Times {
    std::uint64_t all = 0;
    std::uint64_t idle = 0;
  };
  static Times now();
  const Times begin_;
};

}  // namespace troupe::bench
