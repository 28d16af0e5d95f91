#include "runtime/base/thread_affinity.hpp"

#include <dirent.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "runtime/base/words.hpp"

namespace troupe {
namespace {

cpu_set_t set_of(std::span<const std::uint32_t> cpus) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  return set;
}

std::vector<std::uint32_t> numbers_of(const cpu_set_t& set) {
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

/// The ids of this process's threads, ascending.
std::vector<std::int32_t> thread_ids() {
  std::vector<std::int32_t> ids;
  const std::unique_ptr<DIR, CloseFolder> folder{::opendir("/proc/self/task")};
  while (folder) {
    const dirent* const entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    if (const auto id = number_in<std::int32_t>(entry->d_name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

ThreadAffinity::ThreadAffinity(std::span<const std::uint32_t> cpus) noexcept {
  if (cpus.empty() || ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  const cpu_set_t wanted = set_of(cpus);
  changed_ = ::sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

void ThreadAffinity::restore() noexcept {
  if (changed_) ::sched_setaffinity(0, sizeof before_, &before_);
  changed_ = false;
}

std::vector<std::uint32_t> permitted_cpus(std::span<const std::uint32_t> cpus) noexcept {
  const cpu_set_t wanted = set_of(cpus);
  cpu_set_t before, now;
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return {};
  // The system ignores the CPUs that it forbids, and refuses the call only if none is left.
  if (::sched_setaffinity(0, sizeof wanted, &wanted) != 0) return {};
  const bool known = ::sched_getaffinity(0, sizeof now, &now) == 0;
  ::sched_setaffinity(0, sizeof before, &before);
  return known ? numbers_of(now) : std::vector<std::uint32_t>{};
}

void keep_process_on(std::span<const std::uint32_t> cpus) noexcept {
  if (cpus.empty()) return;
  const cpu_set_t wanted = set_of(cpus);
  for (const std::int32_t id : thread_ids()) ::sched_setaffinity(id, sizeof wanted, &wanted);
}

std::vector<ThreadOnCpus> threads_of_process() {
  std::vector<ThreadOnCpus> threads;
  for (const std::int32_t id : thread_ids()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(id, sizeof set, &set) != 0) continue;
    ThreadOnCpus& thread = threads.emplace_back(ThreadOnCpus{id, {}, numbers_of(set)});
    std::ifstream file{"/proc/self/task/" + std::to_string(id) + "/comm"};
    std::getline(file, thread.name);
  }
  return threads;
}

}  // namespace troupe
