#pragma once

#include <signal.h>

namespace troupe::rtrun {

// In a program that has early_signals.cpp among its own sources, SIGHUP and SIGUSR1 are blocked before the initializers
// of its libraries run. SIGUSR1, which asks a run what it is doing, would end the program, and UCX's library takes
// SIGHUP for itself while it is loaded. Before that, while the dynamic loader links the program, both still do what
// they do by default.

/// The mask with which this process started.
const sigset_t& mask_at_start() noexcept;

/// The signal does again what it does by default, unless this process started with it blocked. For the only thread.
void release_early(int signal) noexcept;

}  // namespace troupe::rtrun
