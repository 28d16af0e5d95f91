#include "tools/bench/group/machine.hpp"

#include <fstream>
#include <string>

namespace troupe::bench {

ResidentMemory resident_memory(pid_t process) {
  ResidentMemory memory;
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with("Vm") && !line.starts_with("Rss")) continue;
    const std::string name = line.substr(0, colon);
    const double megabytes = static_cast<double>(std::stoull(line.substr(colon + 1))) * 1024 / 1e6;
    if (name == "VmRSS") memory.all = megabytes;
    if (name == "RssAnon" || name == "RssShmem") memory.own += megabytes;
  }
  return memory;
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

}  // namespace troupe::bench
