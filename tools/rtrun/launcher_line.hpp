#pragma once

#include <string>

#include "tools/rtrun/polled_thread.hpp"

namespace troupe::rtrun {

/// The connection from a launcher on another machine to this rank: its stdin. "signal N" raises that signal here. If it
/// closes, the launcher or the remote shell has ended: this process then kills itself, as the kernel does on the
/// launcher's own machine. Read by a separate thread from the construction on.
class LauncherLine {
 public:
  /// Construct it after the secret has been read from stdin. Throws Error{environment}.
  LauncherLine();

 private:
  void read();
  std::string pending_;  // what has come of the next line; the thread's
  PolledThread thread_;
};

}  // namespace troupe::rtrun
