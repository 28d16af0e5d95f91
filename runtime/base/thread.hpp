#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

/// Between two looks of a thread that polls: leaves the core to its other hardware thread for a moment.
inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Starts a thread of the runtime: it takes no signals (they belong to the app's threads) and shows as `name` (at most
/// 15 characters are kept) in debuggers and top. Throws Error{environment} when the system gives no thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

/// Keeps a thread on some CPUs. Throws Error{environment} naming them and `what` when the system refuses,
/// Error{invalid} for numbers that no CPU has.
void keep_on(std::thread& thread, std::span<const std::uint32_t> cpus, const std::string& what);

/// The CPUs that the calling thread may use, ascending; empty when the system does not say.
std::vector<std::uint32_t> usable_cpus();

}  // namespace troupe
