#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/fd.hpp"

namespace troupe {

/// A file that grows by one write a piece, so that the work and the memory of a piece do not grow with the file, and
/// what a process that is killed leaves is whole, but for a kill inside of that write. It may have an ending, which
/// every piece is put in front of. Threads: one at a time.
class GrowingFile {
 public:
  /// `end`: of the file, whatever was added.
  GrowingFile(std::string path, std::string_view end) : path_(std::move(path)), end_(end) {}
  const std::string& path() const noexcept { return path_; }
  /// Whether begin() made it and nobody removed it since. Throws Error{environment}.
  bool is_there() const;
  /// Replaces what is there under its path by `bytes` and the ending; a reader sees the old file or the new one. Throws
  /// Error{environment}: the old one stays.
  void begin(std::string_view bytes);
  /// Adds `bytes` in front of the ending. is_there(). Throws Error{environment} naming the file: it stays as it was.
  void append(std::string_view bytes);

 private:
  const std::string path_;
  const std::string end_;
  Fd file_;
  std::uint64_t size_bytes_ = 0;
};

/// All bytes of a file; empty when it is not there or cannot be read.
std::string bytes_of(const std::string& path);

}  // namespace troupe
