#pragma once

#include <sched.h>

#include <cstdint>
#include <span>

namespace troupe {

/// Keeps the calling thread, and the threads that it starts meanwhile, on some CPUs; restore() or the end gives the
/// thread back what it had. Empty `cpus`: changes nothing.
class ThreadAffinity {
 public:
  explicit ThreadAffinity(std::span<const std::uint32_t> cpus);
  ~ThreadAffinity() { restore(); }
  ThreadAffinity(const ThreadAffinity&) = delete;
  ThreadAffinity& operator=(const ThreadAffinity&) = delete;
  void restore() noexcept;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

}  // namespace troupe
