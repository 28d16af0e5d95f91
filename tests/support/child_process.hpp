#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "runtime/base/clock.hpp"

namespace troupe::testing {

/// A forked process that runs a function and ends with its result as exit code (99: it threw). Fork before the test
/// starts threads. Killed and reaped at the latest when the object ends, so no test leaves a process.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) {
      int code = 99;
      try {
        code = body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child process: %s\n", error.what());
      }
      _exit(code);
    }
  }
  ~ChildProcess() {
    if (pid_ > 0) {
      kill_hard();
      waitpid(pid_, nullptr, 0);
    }
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

  pid_t pid() const noexcept { return pid_; }
  void kill_hard() const noexcept { kill(pid_, SIGKILL); }

  /// The exit code, or 128 + the signal; -1 when it has not ended within `span`.
  int wait(Clock::duration span = std::chrono::seconds{20}) {
    const Deadline deadline = Deadline::after(span);
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (deadline.passed()) return -1;
      usleep(500);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

/// Looks every half a millisecond whether `condition` holds; false after `span`.
template <class Condition>
bool eventually(Condition condition, Clock::duration span = std::chrono::seconds{10}) {
  const Deadline deadline = Deadline::after(span);
  while (!condition()) {
    if (deadline.passed()) return false;
    usleep(500);
  }
  return true;
}

}  // namespace troupe::testing
