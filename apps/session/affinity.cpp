#include "apps/session/affinity.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe {

ThreadAffinity::ThreadAffinity(std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return;
  TROUPE_CHECK_ERRNO(::sched_getaffinity(0, sizeof before_, &before_) == 0, Code::environment,
                     "cannot read the CPUs of this thread");
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const std::uint32_t cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &wanted);
  TROUPE_CHECK_ERRNO(::sched_setaffinity(0, sizeof wanted, &wanted) == 0, Code::environment,
                     "cannot keep this rank on the ", cpus.size(), " CPUs of the plan, the first of them ",
                     cpus.front());
  changed_ = true;
}

void ThreadAffinity::restore() noexcept {
  if (changed_) ::sched_setaffinity(0, sizeof before_, &before_);
  changed_ = false;
}

}  // namespace troupe
