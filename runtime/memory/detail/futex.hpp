#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/clock.hpp"

// Thin wrappers of futex calls, all of the shared kind: the words lie in memory that several processes map.
namespace troupe::futex {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

/// A time of the steady clock in the kernel's form (libstdc++ reads CLOCK_MONOTONIC for it).
inline timespec kernel_time(Clock::time_point at) noexcept {
  const auto since = std::max(at.time_since_epoch(), Clock::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {static_cast<time_t>(seconds.count()),
          static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count())};
}

/// Sleeps while `word` is `expected`, until woken or until `until`; may return early. Returns 0, or -1 with errno.
inline long wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Clock::time_point until) noexcept {
  const timespec end = kernel_time(until);
  return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &end, nullptr, FUTEX_BITSET_MATCH_ANY);
}

inline void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// The format of the kernel's futex_waitv (Linux 5.16); defined here because older headers lack it.
struct Watched {
  std::uint64_t expected = 0;
  std::uint64_t address = 0;
  std::uint32_t flags = 2;  // 32 bits wide, shared
  std::uint32_t reserved = 0;
};
constexpr std::size_t kMaxWatched = 128;
inline Watched watched(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  return {.expected = expected, .address = reinterpret_cast<std::uintptr_t>(&word)};
}

/// Sleeps until one of the words differs from its expected value, or is woken. Returns -1 with errno: ENOSYS if the
/// kernel lacks the call.
inline long wait_any(std::span<const Watched> words) noexcept {
  constexpr long kFutexWaitv = 449;
  return syscall(kFutexWaitv, words.data(), words.size(), 0, nullptr, CLOCK_MONOTONIC);
}

}  // namespace troupe::futex
