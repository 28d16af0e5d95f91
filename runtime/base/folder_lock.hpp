#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

namespace troupe {

/// A folder that only one job at a time writes into: a lock (flock) on a file in it, which names the job that holds it.
/// The kernel releases the lock when the process ends, however it ends; the file stays. On NFS the server keeps the
/// lock for all hosts, and releases a crashed host's locks when that host is back, or after a time.
class FolderLock {
 public:
  /// Locks `file` in `folder`, which must exist. Waits until `deadline` while another process holds the lock: a process
  /// that was killed needs a moment to end. `holder` describes this job to people; process, host and time are added.
  /// Throws Error{environment}, which names the holder; `cure` says what to do instead.
  static FolderLock take(Blocking& blocking, const std::string& folder, const char* file, const std::string& holder,
                         const std::string& cure, Deadline deadline);

  /// Writes the owner again.
  void name(const std::string& holder) const noexcept;
  /// False: this file system has no locks, so other jobs are not kept out.
  bool held() const noexcept { return held_; }

 private:
  FolderLock(Fd file, bool held) noexcept : file_(std::move(file)), held_(held) {}
  Fd file_;
  bool held_;
};

/// How long a job waits for the lock of a job that was killed.
inline constexpr std::chrono::seconds kLockPatience{5};

}  // namespace troupe
