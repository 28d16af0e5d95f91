#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "tools/rtrun/polled_thread.hpp"

namespace troupe::rtrun {

/// Blocks the signals that end a program (SIGINT, SIGTERM, and SIGHUP unless it was ignored, as under nohup) and
/// SIGUSR1, which asks what it is doing, so that they can be read from a descriptor. Constructed by main before any
/// thread is started, since threads inherit the mask. Also ignores SIGPIPE and SIGTTOU: a closed reader, or a terminal
/// that refuses output, must not end a run.
class Signals {
 public:
  /// Throws Error{environment} if the system has no descriptor left.
  Signals();
  /// `former`: the mask with which this process started.
  explicit Signals(const sigset_t& former) : Signals() { former_ = former; }
  /// Readable when a signal is pending.
  int fd() const noexcept { return fd_.get(); }
  /// From now on SIGTSTP (Ctrl-Z) is read from the descriptor, too, unless it is ignored. Other threads must block it.
  /// Throws Error{environment}.
  void take_suspend_too() const;
  /// The next pending signal, 0 if there is none. Never waits. A signal that comes again from the same process within
  /// 100 ms is left out: timeout(1) and batch systems signal a process and then its group. Threads: one at a time.
  int take() const noexcept;
  /// Gives a forked child the mask with which this process started, except that SIGUSR1 and SIGHUP stay blocked until a
  /// rank has constructed its own Signals: it then answers the first, and ends by the second, which UCX's library would
  /// take for itself while it is loaded. A program other than rtrun gets everything as rtrun found it, with the default
  /// action for SIGPIPE and SIGTTOU. Async-signal-safe.
  void restore_in_child(bool own_program = true) const noexcept;

 private:
  sigset_t taken_;
  sigset_t former_;
  Fd fd_;
  mutable signalfd_siginfo last_{};
  mutable Clock::time_point last_at_;
};

/// Answers signals for one rank, on a separate thread: the first one calls `stop`, or, if there is nothing to stop,
/// ends the process at once; the second one ends it at once. SIGUSR1 only calls `report`. "At once" is _exit(128 +
/// signal): a rank has nothing with a name in the file system that would be left behind.
class SignalThread {
 public:
  explicit SignalThread(const Signals& signals);
  /// From now on the first signal calls `stop`, on the signal thread. A null function: there is nothing to stop any
  /// more.
  void on_first(std::function<void()> stop);
  /// From now on SIGUSR1 calls `report`, on the signal thread, which answers no other signal meanwhile. A null
  /// function: there is nothing to report, and a message on stderr says so.
  void on_report(std::function<void()> report);
  /// The first signal that was received, except SIGUSR1; 0: none.
  int first() const;
  /// How long to wait for a reader of the last lines: three quarters of `stop` from the first signal on, since the
  /// launcher, or a batch system, kills after all of it. Nothing: there was no signal.
  std::optional<Deadline> patience(std::chrono::milliseconds stop) const;

 private:
  void answer();
  const Signals& signals_;
  mutable std::mutex mutex_;  // guards the members below
  std::function<void()> stop_;
  std::function<void()> report_;
  int first_ = 0;
  Clock::time_point first_at_;
  PolledThread thread_;
};

}  // namespace troupe::rtrun
