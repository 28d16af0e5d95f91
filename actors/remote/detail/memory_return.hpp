#pragma once

#include <cstdint>
#include <utility>

#include "runtime/base/clock.hpp"

namespace troupe::remote {

/// Returns the memory of a large backlog to the system after the backlog has ended; otherwise the allocator would keep
/// it. Threads: the control lane's.
class MemoryReturn {
 public:
  /// The bytes of messages at present. A backlog may begin and end between two calls of look().
  void note(std::uint64_t bytes) noexcept {
    if (bytes > kLarge) seen_ = true;
  }
  void look(std::uint64_t bytes, Clock::time_point now);

 private:
  /// Only for a larger backlog is it worth returning the memory, which takes milliseconds, as does allocating it again.
  static constexpr std::uint64_t kLarge = std::uint64_t{16} << 20;

  bool seen_ = false;       // there was a large one since the last call of look()
  bool returned_ = true;    // the memory of the last large one was returned
  Clock::time_point last_;  // the last time at which there was a large one
};

}  // namespace troupe::remote
