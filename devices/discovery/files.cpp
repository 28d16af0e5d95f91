#include "devices/discovery/detail/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace troupe::detail {

std::optional<std::string> read_small_file(const std::string& path) {
  // Not a stream: some files of /sys can be opened but not read, and libstdc++'s stream then throws.
  constexpr std::size_t kMostBytes = 1 << 20;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string content;
  std::array<char, 4096> part;
  ssize_t got = 0;
  while (content.size() < kMostBytes && (got = ::read(fd, part.data(), part.size())) != 0) {
    if (got > 0) content.append(part.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  ::close(fd);
  if (got < 0) return std::nullopt;
  while (!content.empty() && content.back() == '\n') content.pop_back();
  return content;
}

}  // namespace troupe::detail
