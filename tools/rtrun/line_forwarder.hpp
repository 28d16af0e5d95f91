#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/fd.hpp"

namespace troupe::rtrun {

/// A file for all output of one rank, created with its first line. Threads: one.
class RankLog {
 public:
  /// Empty path: there is no file, and every line is shown instead.
  /// `program`: the name with which the rank's own lines begin, before a colon.
  explicit RankLog(std::string path, std::string_view program = "rtrun")
      : path_(std::move(path)), own_(std::string{program} + ": ") {}
  /// False if the line could not be written.
  bool keep(std::string_view line);
  const std::string& path() const noexcept { return path_; }
  /// Whether the rank's program itself wrote this line, and not one of its libraries.
  bool is_own(std::string_view line) const noexcept { return line.starts_with(own_); }
  bool made() const noexcept { return static_cast<bool>(file_); }
  /// The first line of the rank that reports an error.
  const std::string& first_error() const noexcept { return first_error_; }
  /// The last line that it wrote, without the line end; long ones are cut.
  const std::string& last_line() const noexcept { return last_line_; }

 private:
  std::string path_;
  std::string own_;
  Fd file_;
  bool failed_ = false;
  std::string first_error_;
  std::string last_line_;
};

/// Passes the output of a rank on to stderr, printable(), line by line, each after a prefix and in one write, so that
/// lines of different ranks are not mixed; and writes it to the rank's log. If there is a log, only the program's own
/// lines are shown. Threads: one.
class LineForwarder {
 public:
  /// `source` must not block when it is read; `log` outlives this object.
  LineForwarder(std::string prefix, Fd source, RankLog& log);
  int fd() const noexcept { return source_.get(); }
  bool open() const noexcept { return static_cast<bool>(source_); }
  /// Reads what is available; closes `source` at the end of the stream.
  void forward();
  /// Writes a last line without a line end.
  void flush();

 private:
  void write_lines(bool all);
  std::string prefix_;
  std::string pending_;
  Fd source_;
  RankLog* log_;
};

}  // namespace troupe::rtrun
