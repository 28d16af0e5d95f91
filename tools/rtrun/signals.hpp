#pragma once

#include <signal.h>

#include <functional>
#include <mutex>
#include <thread>

#include "runtime/base/fd.hpp"

namespace troupe::rtrun {

/// Takes the signals that end a program (SIGINT, SIGTERM, and SIGHUP unless it was ignored, as under nohup) and
/// SIGUSR1, which asks what it is doing, away from their default action, to be read from a descriptor. Made by main
/// before any thread is started, since threads inherit the mask. Also ignores SIGPIPE and SIGTTOU: a reader that leaves
/// or a terminal that objects ends no run.
class Signals {
 public:
  /// Throws Error{environment} when the system refuses a descriptor.
  Signals();
  /// Readable when a signal is pending.
  int fd() const noexcept { return fd_.get(); }
  /// The next pending signal, 0 when there is none. Never waits.
  int take() const noexcept;
  /// Gives a forked child the mask this process started with, but for SIGUSR1: a rank that is asked what it is doing
  /// before it has made its own Signals answers then. A program that is not rtrun gets all as rtrun found it, with the
  /// default action for SIGPIPE and SIGTTOU. Async-signal-safe.
  void restore_in_child(bool own_program = true) const noexcept;

 private:
  sigset_t former_;
  Fd fd_;
};

/// One rank's answer to signals, on a thread of its own: the first one calls `stop`, or ends the process at once while
/// there is nothing to stop; the second ends it at once. SIGUSR1 only calls `report`. "At once" is _exit(128 + signal):
/// nothing of a rank has a name in the file system, so nothing is left behind.
class SignalThread {
 public:
  explicit SignalThread(const Signals& signals);
  ~SignalThread();
  /// From now on the first signal calls `stop`, on the signal thread. A null function: there is nothing to stop any
  /// more.
  void on_first(std::function<void()> stop);
  /// From now on SIGUSR1 calls `report`, on the signal thread, which meanwhile answers no other signal. A null
  /// function: there is nothing to report, and that is said on stderr.
  void on_report(std::function<void()> report);
  /// The first signal that came, SIGUSR1 aside; 0: none.
  int first() const;

 private:
  void watch();
  const Signals& signals_;
  Fd end_;                    // an eventfd that ends the thread
  mutable std::mutex mutex_;  // guards stop_, report_ and first_
  std::function<void()> stop_;
  std::function<void()> report_;
  int first_ = 0;
  std::thread thread_;
};

}  // namespace troupe::rtrun
