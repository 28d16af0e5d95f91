#pragma once

#include <functional>
#include <thread>

#include "runtime/base/fd.hpp"

namespace troupe::rtrun {

/// A thread that calls a function whenever a descriptor can be read.
class PolledThread {
 public:
  /// `polled` stays open, and what `read` uses alive, until the destructor returns. Throws Error{environment}.
  PolledThread(const char* name, int polled, std::function<void()> read);
  /// Waits for the end of the call that is in progress.
  ~PolledThread();
  PolledThread(const PolledThread&) = delete;
  PolledThread& operator=(const PolledThread&) = delete;

 private:
  const Fd end_;  // ends the thread (an eventfd)
  std::thread thread_;
};

}  // namespace troupe::rtrun
