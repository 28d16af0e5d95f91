#pragma once

#include <thread>

#include "runtime/base/fd.hpp"

namespace troupe::rtrun {

/// The connection from a launcher on another machine to this rank: its stdin. "signal N" raises that signal here. If it
/// closes, the launcher or the remote shell has ended: this process then kills itself, as the kernel does on the
/// launcher's own machine. Read by a separate thread from the construction on.
class LauncherLine {
 public:
  /// Construct it after the secret has been read from stdin. Throws Error{environment}.
  LauncherLine();
  ~LauncherLine();
  LauncherLine(const LauncherLine&) = delete;
  LauncherLine& operator=(const LauncherLine&) = delete;

 private:
  void watch() const;
  Fd end_;  // ends the thread (an eventfd)
  std::thread thread_;
};

}  // namespace troupe::rtrun
