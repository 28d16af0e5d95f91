#pragma once

#include <string>

#include "runtime/fd.hpp"

namespace troupe::rtrun {

/// Passes what a rank writes on to stderr, line by line, each behind a prefix and written at once so that lines of
/// different ranks do not mix. Threads: one.
class LineForwarder {
 public:
  /// `source` does not block when read.
  LineForwarder(std::string prefix, Fd source);
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
};

}  // namespace troupe::rtrun
