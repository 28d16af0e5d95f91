#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/session/growing_file.hpp"
#include "runtime/report/report.hpp"

namespace troupe {

/// One line as ChainerMN's LogReport names things: {"main/loss": ..., "epoch": 1, "iteration": 300, ...}, one line;
/// values that the app reported stand among them by their names.
std::string epoch_json(const EpochReport& report);
/// Whether the log has a key of that name by itself, so that no value that an app reports may have it.
bool is_log_key(const std::string& name);

/// An evaluation of the test set, as a log has it.
struct LoggedEvaluation {
  std::uint64_t steps = 0;
  std::uint32_t epoch = 0;
  double loss = 0;  // NaN: it was not finite
};
/// Those of the first `steps` steps in the log at `path`, in order; of steps that were trained again the last. None
/// where it is not a log.
std::vector<LoggedEvaluation> evaluations_in(const std::string& path, std::uint64_t steps);

/// The log of a run: an array of those, indented by 4 as LogReport does. A line is added with one write (GrowingFile);
/// for a kill inside of that see mend_log. Threads: one at a time.
class LogFile {
 public:
  /// The first line replaces what is there under `path`.
  explicit LogFile(std::string path);
  /// Before the first line: of what is there the lines of the first `steps` steps stay. A file that is not a log is
  /// replaced.
  void go_on_after(std::uint64_t steps);
  /// Adds a line. Throws Error{environment} naming the file when it cannot be written; the file stays whole then, and
  /// the line comes with the next one, as do the newest ones before it (1 MiB of them).
  void add(const EpochReport& report);

 private:
  GrowingFile file_;
  std::string kept_;     // lines of an earlier run that the first line follows, each behind a comma
  std::string waiting_;  // lines that are not in the file yet, each behind a comma
};

/// The same lines as a table for programs that read CSV: a line of names, then one a line, numbers in decimal, an empty
/// cell for what a line does not have. Values that an app reports have columns behind the others; when a new one comes
/// the file is replaced as a whole by one with that column, in which the rows before have empty cells. What a cell
/// cannot hold (switches, ranks) is in the log alone. Threads: one at a time.
class CsvLog {
 public:
  /// The first line replaces what is there under `path`.
  explicit CsvLog(std::string path);
  /// As of LogFile.
  void go_on_after(std::uint64_t steps);
  /// As of LogFile.
  void add(const EpochReport& report);

 private:
  std::string lines(const std::vector<std::string>& rows) const;
  GrowingFile file_;
  std::vector<std::string> columns_;
  std::vector<std::string> kept_;     // rows of an earlier run that the first one follows
  std::vector<std::string> waiting_;  // rows that are not in the file yet
  bool wider_ = false;                // the file lacks columns
};

/// Gives a log whose writer was killed inside of a write its end again, and the table beside it (`path`.csv): the lines
/// that are complete stay. What is whole, or is none, is left alone.
void mend_log(const std::string& path) noexcept;

}  // namespace troupe
