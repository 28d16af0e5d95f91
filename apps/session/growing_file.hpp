#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/fd.hpp"

namespace troupe {

/// A file that grows by one write for each piece. The time and memory for a piece do not grow with the file, and if the
/// process is killed the file is complete, except when it is killed within that write. The file may have an ending;
/// every piece is inserted before it. Threads: one at a time.
class GrowingFile {
 public:
  /// `end`: the ending of the file.
  GrowingFile(std::string path, std::string_view end) : path_(std::move(path)), end_(end) {}
  const std::string& path() const noexcept { return path_; }
  /// Whether begin() has created the file and nobody has removed it since. Throws Error{environment}.
  bool is_there() const;
  /// Replaces the regular file at the path by `bytes` and the ending; a reader sees the old file or the new one. Throws
  /// Error{environment}; then the old file is unchanged.
  void begin(std::string_view bytes);
  /// Inserts `bytes` before the ending. Requires is_there(). Throws Error{environment} naming the file, which is then
  /// unchanged.
  void append(std::string_view bytes);

 private:
  const std::string path_;
  const std::string end_;
  Fd file_;
  std::uint64_t size_bytes_ = 0;
};

/// All bytes of a file; empty if it does not exist or cannot be read.
std::string bytes_of(const std::string& path);

}  // namespace troupe
