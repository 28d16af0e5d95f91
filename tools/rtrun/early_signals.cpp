#include "tools/rtrun/early_signals.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace troupe::rtrun {
namespace {

/// As the kernel has it: a bit for each signal.
constinit unsigned long kernel_mask_at_start = 0;

constexpr unsigned long bit_of(int signal) noexcept { return 1UL << (signal - 1); }
constexpr unsigned long kHeld = bit_of(SIGHUP) | bit_of(SIGUSR1);

/// Runs before the C library's wrappers and a sanitizer's are ready, so it makes the system call itself.
__attribute__((no_sanitize("address", "thread", "undefined"))) void hold_early() noexcept {
  ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, &kHeld, &kernel_mask_at_start, sizeof kHeld);
}

__attribute__((section(".preinit_array"), used)) void (*const kBeforeLibraries)() = hold_early;

}  // namespace

const sigset_t& mask_at_start() noexcept {
  static const sigset_t mask = [] {
    sigset_t made;
    sigemptyset(&made);
    for (int signal = 1; signal < NSIG; ++signal)
      if ((kernel_mask_at_start & bit_of(signal)) != 0) sigaddset(&made, signal);
    return made;
  }();
  return mask;
}

void release_early(int signal) noexcept {
  if (sigismember(&mask_at_start(), signal) == 1) return;
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
}

}  // namespace troupe::rtrun
