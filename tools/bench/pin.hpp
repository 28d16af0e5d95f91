#pragma once

#include <sched.h>

#include "runtime/base/error.hpp"

namespace troupe::bench {

/// Keeps the calling thread, and those that it starts from now on, on one CPU. Throws Error{environment}.
inline void pin_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  TROUPE_CHECK_ERRNO(::sched_setaffinity(0, sizeof only, &only) == 0, Code::environment, "cannot run on CPU ", cpu,
                     " alone; give others with --cpus");
}

}  // namespace troupe::bench
