#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/session/passing_listener.hpp"
#include "apps/session/run_log.hpp"
#include "runtime/base/folder_lock.hpp"

namespace troupe {

/// Keeps a run's log and its table in report.dir, and passes all events on. Used by rank 0. Threads: one call at a
/// time.
class LogWriter final : public PassingListener {
 public:
  /// `to` outlives it; null: there is no listener.
  LogWriter(const Settings& settings, SessionListener* to);

  void resumed(const std::string& folder, std::uint64_t steps) override;
  void epoch(const EpochReport& report) override;
  /// Keeps other jobs from writing to report.dir until release(), and waits a moment for one that was just killed. A
  /// folder that cannot be written is no error here: warn() tells of it. Throws Error{environment} that names the job
  /// that has the lock.
  void lock(Blocking& blocking);
  /// Nothing more is written.
  void release() { folder_lock_.reset(); }

 private:
  void warn(const std::string& what);
  const std::string folder_;
  const std::string checkpoints_;
  LogFile log_;
  CsvLog table_;
  std::optional<FolderLock> folder_lock_;
  bool warned_ = false;
};

}  // namespace troupe
