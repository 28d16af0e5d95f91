#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "runtime/memory/detail/futex.hpp"

namespace troupe::testing {

inline constexpr const char* kNoEndMarks =
    "this kernel has no futex_waitv (it is older than 5.16, or a filter forbids the call)";

/// Whether an EndMarkWatch can report anything here.
inline bool end_marks_work() {
  const std::atomic<std::uint32_t> word{0};
  const futex::Watched other = futex::watched(word, 1);  // returns at once
  return futex::wait_any({&other, 1}) == -1 && errno == EAGAIN;
}

}  // namespace troupe::testing
