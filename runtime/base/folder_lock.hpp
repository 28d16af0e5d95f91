#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

namespace troupe {

/// A folder that one job at a time writes into: a lock (flock) on a file in it, which says who has it. The kernel lets
/// it go with the process, however that ends; the file stays. On NFS the server keeps it, for all hosts that mount the
/// folder from it, and lets go of it when a host that went down is back or the server gives it up.
class FolderLock {
 public:
  /// Locks `file` of `folder`, which is there, or waits until `deadline` for whoever has it: a process that was killed
  /// needs a moment to end. `holder` tells people whose lock it is, beside process, host and time. Throws
  /// Error{environment} that names who has it; `cure` says what to do instead.
  static FolderLock take(Blocking& blocking, const std::string& folder, const char* file, const std::string& holder,
                         const std::string& cure, Deadline deadline);

  /// Writes the owner again.
  void name(const std::string& holder) const noexcept;
  /// False: this file system keeps no locks, so nobody is kept away.
  bool held() const noexcept { return held_; }

 private:
  FolderLock(Fd file, bool held) noexcept : file_(std::move(file)), held_(held) {}
  Fd file_;
  bool held_;
};

/// How long a job waits for one that was killed.
inline constexpr std::chrono::seconds kLockPatience{5};

}  // namespace troupe
