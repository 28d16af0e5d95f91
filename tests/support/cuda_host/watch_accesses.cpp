// Reports accesses by the CPU to device memory that it must not access.
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "tests/support/cuda_host/process.hpp"

namespace troupe::cuda::host {

thread_local const Place* running = nullptr;

namespace {

struct sigaction before;

/// The process ends now, so it may do what a handler should not: allocate, and look without the mutex if another thread
/// has it.
void tell(int, siginfo_t* about, void*) {
  Process& all = process();
  const auto at = reinterpret_cast<Address>(about->si_addr);
  const bool hidden = all.memory.is_hidden(at);
  if (hidden || all.memory.is_shown(at)) {
    const std::unique_lock lock{all.mutex, std::try_to_lock};
    const AllocationPtr found = all.memory.find(hidden ? at - all.memory.distance() : at);
    const std::string where = found == nullptr ? "no allocation" : found->text();
    if (running != nullptr)
      reports().add("kernel at wrong address", running->text() + " touches " + where);
    else
      reports().add("device memory touched by the CPU", where);
    void* frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
  }
  sigaction(SIGSEGV, &before, nullptr);  // the access is tried again, and meets what was there
}

}  // namespace

void watch_accesses() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs now, not in the handler
  struct sigaction action {};
  action.sa_sigaction = tell;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
}

}  // namespace troupe::cuda::host
