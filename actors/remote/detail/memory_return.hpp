#pragma once

#include <cstdint>
#include <utility>

#include "runtime/base/clock.hpp"

namespace troupe::remote {

/// Gives the memory that a large backlog took back to the system once it is gone: the allocator would keep it. Threads:
/// the control lane's.
class MemoryReturn {
 public:
  /// Messages take so much now. A backlog may come and go between two looks.
  void note(std::uint64_t bytes) noexcept {
    if (bytes > kLarge) seen_ = true;
  }
  void look(std::uint64_t bytes, Clock::time_point now);

 private:
  /// A backlog that takes more is worth the work, which takes milliseconds, as does getting the memory again.
  static constexpr std::uint64_t kLarge = std::uint64_t{16} << 20;

  bool seen_ = false;       // a large one, since the last look
  bool returned_ = true;    // what the last large one took
  Clock::time_point last_;  // when there was some last
};

}  // namespace troupe::remote
