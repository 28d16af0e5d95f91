#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/clock.hpp"

namespace troupe::crew {

/// What the kernel tells of a live process under `name`: "VmRSS" (resident, with the pages that processes share),
/// "VmHWM" (the most that was), "RssAnon", "RssShmem"; in MB of 1e6 bytes, 0 when it is not alive.
double memory_mb(pid_t process, std::string_view name);

/// What a thread (CLOCK_THREAD_CPUTIME_ID) or this process (CLOCK_PROCESS_CPUTIME_ID) has had of cores.
Clock::duration core_time(clockid_t whose);

/// Keeps the calling thread, and those that it starts from now on, on one CPU. Throws Error{environment}.
void pin_to(int cpu);

/// ", load average 0.5": without it figures say little. Empty: the system does not tell.
std::string load_average();

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

}  // namespace troupe::crew
