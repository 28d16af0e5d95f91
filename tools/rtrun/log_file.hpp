#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/fd.hpp"
#include "runtime/report.hpp"

namespace troupe::rtrun {

/// One epoch as ChainerMN's LogReport names things: {"main/loss": ..., "epoch": 1, "iteration": 300, ...}, one line.
std::string epoch_json(const EpochReport& report);
/// The log of a run: an array of those, indented by 4 as LogReport does. Each line is put in place of the closing
/// bracket with one write, so that the work and the memory of a line do not grow with the log, and what a process that
/// is killed leaves is whole, but for a kill inside of that write (see mend_log). Threads: one at a time.
class LogFile {
 public:
  /// The first line replaces what is there under `path`.
  explicit LogFile(std::string path) : path_(std::move(path)) {}
  /// Adds a line. Throws Error{environment} naming the file when it cannot be written; the file stays whole then, and
  /// the line comes with the next one, as do the newest ones before it (1 MiB of them).
  void add(const EpochReport& report);

 private:
  void begin();
  void append();
  std::string path_;
  Fd file_;
  std::uint64_t size_bytes_ = 0;
  std::string waiting_;  // lines that are not in the file yet, each behind a comma
};

/// Gives a log whose writer was killed inside of a write its end again: the lines that are complete stay. A log that
/// is whole, or is none, is left alone.
void mend_log(const std::string& path) noexcept;

}  // namespace troupe::rtrun
