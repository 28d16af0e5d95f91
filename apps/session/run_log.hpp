#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "apps/session/growing_file.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/folder_lock.hpp"
#include "runtime/report/report.hpp"

namespace troupe {

/// One line with the names of ChainerMN's LogReport: {"main/loss": ..., "epoch": 1, "iteration": 300, ...}, one line;
/// values that the app reported are among them under their names.
std::string epoch_json(const EpochReport& report);
/// Whether the log itself has a key with that name; the app must not report a value under such a name.
bool is_log_key(const std::string& name);

/// An evaluation of the test set, as the log contains it.
struct LoggedEvaluation {
  std::uint64_t steps = 0;
  std::uint32_t epoch = 0;
  double loss = 0;  // NaN: not finite
};
/// The evaluations of the first `steps` steps in the log at `path`, in order; of steps that were trained again, the
/// last ones. Empty if it is not a log.
std::vector<LoggedEvaluation> evaluations_in(const std::string& path, std::uint64_t steps);

/// The log of a run: an array of those lines, indented by 4 as in LogReport. A line is added with one write
/// (GrowingFile); if the process is killed within it, see mend_log. Threads: one at a time.
class LogFile {
 public:
  /// The first line replaces the file at `path`.
  explicit LogFile(std::string path);
  /// Call it before the first line: keeps the existing lines of the first `steps` steps. A file that is not a log is
  /// replaced.
  void go_on_after(std::uint64_t steps);
  /// Adds a line. Throws Error{environment} naming the file if it cannot be written. The file is complete then, and the
  /// next call writes this line, too, with the newest ones before it (1 MiB of them).
  void add(const EpochReport& report);

 private:
  GrowingFile file_;
  std::string kept_;     // lines of an earlier run before the first line, each after a comma
  std::string waiting_;  // lines that are not in the file yet, each after a comma
};

/// The same lines as a table for programs that read CSV: a line of names, then a row for each line, numbers in decimal,
/// an empty cell for a value that a line does not have. Values that an app reports have columns after the others; for a
/// new value the whole file is replaced by one with another column, in which earlier rows have empty cells. Lists
/// (switches, ranks) are only in the log. Threads: one at a time.
class CsvLog {
 public:
  /// The first line replaces the file at `path`.
  explicit CsvLog(std::string path);
  /// As in LogFile.
  void go_on_after(std::uint64_t steps);
  /// As in LogFile.
  void add(const EpochReport& report);

 private:
  std::string lines(const std::vector<std::string>& rows) const;
  GrowingFile file_;
  std::vector<std::string> columns_;
  std::vector<std::string> kept_;     // rows of an earlier run before the first row
  std::vector<std::string> waiting_;  // rows that are not in the file yet
  bool wider_ = false;                // the file lacks columns that rows have
};

/// Repairs a log whose writer was killed within a write, and the table beside it (`path`.csv): complete lines stay, and
/// the ending is added. A file that is complete, or is not a log, is not changed.
void mend_log(const std::string& path) noexcept;

/// Prevents other jobs from writing to the report's folder `dir`; waits a moment for a job that was just killed. `note`
/// is called if the file system has no locks. Throws Error{environment} that names the job that has the lock, which
/// calls itself `holder`.
FolderLock lock_report(Blocking& blocking, const std::string& dir, const std::string& holder,
                       const std::function<void(const std::string&)>& note);

}  // namespace troupe
