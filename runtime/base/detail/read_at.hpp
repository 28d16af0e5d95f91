#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/fd.hpp"

namespace troupe {

/// Reads from byte `at` of a file on, until `to` is full or the file ends; signals do not interrupt it. Returns how
/// many bytes it has read; negative: errno says why it cannot read.
inline ssize_t read_at(const Fd& file, std::uint64_t at, std::span<std::byte> to) noexcept {
  std::size_t got = 0;
  while (got < to.size()) {
    const ssize_t n = ::pread(file.get(), to.data() + got, to.size() - got, static_cast<off_t>(at + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return n;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(got);
}

}  // namespace troupe
