#pragma once

#include <sched.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Keeps the calling thread, and the threads that it starts meanwhile, on some CPUs; restore() or the end gives the
/// thread back what it had. Empty `cpus`, or none that the system allows: changes nothing.
class ThreadAffinity {
 public:
  explicit ThreadAffinity(std::span<const std::uint32_t> cpus) noexcept;
  ~ThreadAffinity() { restore(); }
  ThreadAffinity(const ThreadAffinity&) = delete;
  ThreadAffinity& operator=(const ThreadAffinity&) = delete;
  void restore() noexcept;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

/// Those of `cpus` on which the system lets a thread of this process be kept, ascending: a control group (cpuset) may
/// forbid some. Moves the calling thread for a moment.
std::vector<std::uint32_t> permitted_cpus(std::span<const std::uint32_t> cpus) noexcept;

/// Keeps all threads that this process has now on `cpus`, and thereby those that they start. Threads that the system
/// does not let go there stay where they are. Empty: changes nothing.
void keep_process_on(std::span<const std::uint32_t> cpus) noexcept;

/// A thread of this process as the system shows it.
struct ThreadOnCpus {
  std::int32_t id = 0;
  std::string name;
  std::vector<std::uint32_t> cpus;  // that it may use, ascending
};
/// All threads of this process, by id; without those that end meanwhile.
std::vector<ThreadOnCpus> threads_of_process();

}  // namespace troupe
