#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/memory/timeline.hpp"

namespace troupe {

/// Polls the lane on the calling thread instead of sleeping until the lane's own thread is scheduled. Threads: any,
/// several at once.
class ActiveWait {
 public:
  /// The calling thread promises to call wait() soon, whatever happens, and may signal other processes before that.
  /// Work of the lane that results from such a signal may be left to that wait.
  virtual void about_to_wait() noexcept = 0;
  /// Like line.wait().
  virtual Status wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline deadline,
                      std::string_view what) = 0;

 protected:
  ~ActiveWait() = default;  // never deleted through this interface; outlives the waits
};

}  // namespace troupe
