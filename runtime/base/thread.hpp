#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

/// For loops that poll: leaves the core's resources to its other hardware thread for a moment.
inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Starts a thread of the runtime. It takes no signals (they belong to the app's threads) and has the name `name` (at
/// most 15 characters are kept) in debuggers and top. Throws Error{environment} if the system cannot start a thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

/// Throws Error{environment} unless the system can start `count` threads now; it starts and ends as many. Call it
/// before libraries start threads of their own: CAF, UCX and OpenMP end the process where one of theirs cannot be
/// started. Others can use up the limit between this call and theirs. Blocks for some 20 us for each thread.
void check_threads(std::size_t count);

/// Pins a thread to some CPUs. Throws Error{environment}, which names them and `what`, if the system refuses, and
/// Error{invalid} for numbers that no CPU can have.
void keep_on(std::thread& thread, std::span<const std::uint32_t> cpus, const std::string& what);

/// The CPUs that the calling thread may use, ascending; empty if the system does not say.
std::vector<std::uint32_t> usable_cpus();

}  // namespace troupe
