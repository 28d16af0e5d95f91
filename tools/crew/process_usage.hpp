#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/clock.hpp"

namespace troupe::crew {

/// What the kernel says about a live process under `name`: "VmRSS" (resident, including shared pages), "VmHWM" (the
/// largest VmRSS so far), "RssAnon", "RssShmem"; in MB of 1e6 bytes, 0 if the process is not alive.
double memory_mb(pid_t process, std::string_view name);

/// The CPU time that a thread (CLOCK_THREAD_CPUTIME_ID) or this process (CLOCK_PROCESS_CPUTIME_ID) has used.
Clock::duration core_time(clockid_t whose);

/// Pins the calling thread, and those that it starts from now on, to one CPU. Throws Error{environment}.
void pin_to(int cpu);

/// ", load average 0.5": figures mean little without it. Empty: unknown.
std::string load_average();

/// How busy this machine's CPUs are, with processes of all users.
class Busyness {
 public:
  Busyness() : begin_(now()) {}
  /// 0 to 1, of all CPUs, since the construction.
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
