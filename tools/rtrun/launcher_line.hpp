#pragma once

#include <thread>

#include "runtime/base/fd.hpp"

namespace troupe::rtrun {

/// The line from a launcher on another machine to this rank: its stdin. "signal N" there raises that signal here, and
/// its end is the launcher's end, or the remote shell's: this process then kills itself, as the kernel does on the
/// launcher's own machine. Watched on a thread of its own from the construction on.
class LauncherLine {
 public:
  /// Made when the secret has been read from stdin. Throws Error{environment}.
  LauncherLine();
  ~LauncherLine();
  LauncherLine(const LauncherLine&) = delete;
  LauncherLine& operator=(const LauncherLine&) = delete;

 private:
  void watch() const;
  Fd end_;  // an eventfd that ends the thread
  std::thread thread_;
};

}  // namespace troupe::rtrun
