#include "tools/crew/process_usage.hpp"

#include <sched.h>

#include <cstdlib>
#include <fstream>

#include "runtime/base/error.hpp"

namespace troupe::crew {

double memory_mb(pid_t process, std::string_view name) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word.ends_with(':') && word.substr(0, word.size() - 1) == name && status >> kib) return kib * 1024 / 1e6;
  }
  return 0;
}

Clock::duration core_time(clockid_t whose) {
  timespec time{};
  ::clock_gettime(whose, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void pin_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  TROUPE_CHECK_ERRNO(::sched_setaffinity(0, sizeof only, &only) == 0, Code::environment, "cannot run on CPU ", cpu,
                     " alone; give others with --cpus");
}

std::string load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? text(", load average ", load) : "";
}

Busyness::Times Busyness::now() {
  std::ifstream stat("/proc/stat");
  std::string word;
  stat >> word;
  Times times;
  constexpr int kFields = 8;  // user nice system idle iowait irq softirq steal
  for (int field = 0; field < kFields; ++field) {
    std::uint64_t ticks = 0;
    stat >> ticks;
    times.all += ticks;
    if (field == 3 || field == 4) times.idle += ticks;
  }
  return times;
}

double Busyness::so_far() const {
  const Times end = now();
  if (end.all <= begin_.all) return 0;
  return 1 - static_cast<double>(end.idle - begin_.idle) / static_cast<double>(end.all - begin_.all);
}

}  // namespace troupe::crew
