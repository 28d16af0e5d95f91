// What tests ask the stand-in, and its report when the process ends.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/support/cuda_host/control.hpp"
#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda::host {
namespace {

void report_leaks(Process& all) {
  for (const auto& [address, allocation] : all.memory.all())
    if (allocation->freeing == nullptr) reports().add("leak", "the process ends with " + allocation->text());
  all.pools.report_leaks();
  all.modules.report_leaks();
  all.streams.report_leaks();
  all.events.report_leaks();
  all.graphs.report_leaks();
  all.execs.report_leaks();
  for (const DeviceState& device : all.devices)
    if (device.retained > 0)
      reports().add("leak", "the process ends with the context of device " + std::to_string(device.number));
}

/// After everything that the program itself does at its end. A process with reports fails.
__attribute__((destructor)) void end_of_process() {
  Process& all = process();
  std::vector<std::shared_ptr<StreamThread>> retired;
  {
    const std::lock_guard lock{all.mutex};
    if (!all.initialized) return;
    report_leaks(all);
    retired.swap(all.retired);
  }
  if (reports().count() == 0) return join_retired(std::move(retired));
  std::fprintf(stderr, "cuda stand-in: %zu mistakes in this process\n", reports().count());
  std::fflush(nullptr);
  _exit(kMistakesExitCode);
}

}  // namespace
}  // namespace troupe::cuda::host

using namespace troupe::cuda::host;

TROUPE_EXPORT int troupe_cuda_host_reports(char* text, std::size_t size_bytes) {
  if (size_bytes > 0) std::snprintf(text, size_bytes, "%s", reports().text().c_str());
  return static_cast<int>(reports().count());
}

TROUPE_EXPORT void troupe_cuda_host_forget_reports() { reports().forget(); }

TROUPE_EXPORT void troupe_cuda_host_access(const void* at, std::size_t size_bytes, int writes, const char* what) {
  Entry entry{what, __builtin_return_address(0), Needs::driver};
  Process& all = entry.all();
  const Range range{reinterpret_cast<Address>(at), size_bytes};
  const Moment now = all.cpu.tick(kCpu);
  if (writes != 0)
    all.races.writes(range, now, all.cpu, entry.place());
  else
    all.races.reads(range, now, all.cpu, entry.place());
}
