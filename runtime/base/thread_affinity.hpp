#pragma once

#include <sched.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Pins the calling thread, and the threads that it starts in the meantime, to some CPUs. restore() or the destructor
/// gives the thread its previous CPUs back. Empty `cpus`, or none that the system allows: changes nothing.
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

/// Those of `cpus` to which the system allows pinning a thread of this process, ascending: a control group (cpuset) may
/// forbid some. Moves the calling thread for a moment.
std::vector<std::uint32_t> permitted_cpus(std::span<const std::uint32_t> cpus) noexcept;

/// Pins all present threads of this process to `cpus`, and thereby the threads that they start later. Threads that the
/// system does not allow to move stay where they are. Empty: changes nothing.
void keep_process_on(std::span<const std::uint32_t> cpus) noexcept;

/// A thread of this process, as the system reports it.
struct ThreadOnCpus {
  std::int32_t id = 0;
  std::string name;
  std::vector<std::uint32_t> cpus;  // those that it may use, ascending
};
/// All threads of this process, by id, without those that end during the call.
std::vector<ThreadOnCpus> threads_of_process();

}  // namespace troupe
