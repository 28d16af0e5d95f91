#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/fd.hpp"

namespace troupe::rtrun {

/// A file for all that one rank writes, made with its first line. Threads: one.
class RankLog {
 public:
  /// No path: no file, and every line is shown instead.
  explicit RankLog(std::string path) : path_(std::move(path)) {}
  /// False when the line could not be kept.
  bool keep(std::string_view line);
  const std::string& path() const noexcept { return path_; }
  bool made() const noexcept { return static_cast<bool>(file_); }
  /// The rank's first error, as it said it.
  const std::string& first_error() const noexcept { return first_error_; }
  /// What it wrote last, without the line's end; long ones are cut.
  const std::string& last_line() const noexcept { return last_line_; }

 private:
  std::string path_;
  Fd file_;
  bool failed_ = false;
  std::string first_error_;
  std::string last_line_;
};

/// Passes what a rank writes on to stderr, line by line, each behind a prefix and written at once so that lines of
/// different ranks do not mix; and into the rank's log. When there is a log only lines of rtrun's own are shown, those
/// that begin with "rtrun: ". Threads: one.
class LineForwarder {
 public:
  /// `source` does not block when read; `log` outlives this object.
  LineForwarder(std::string prefix, Fd source, RankLog& log);
  int fd() const noexcept { return source_.get(); }
  bool open() const noexcept { return static_cast<bool>(source_); }
  /// Reads what there is; closes at the end of the stream.
  void forward();
  /// Writes a line that has no end yet.
  void flush();

 private:
  void write_lines(bool all);
  std::string prefix_;
  std::string pending_;
  Fd source_;
  RankLog* log_;
};

}  // namespace troupe::rtrun
