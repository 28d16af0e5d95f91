#include "runtime/config/detail/text_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"

namespace troupe::detail {
namespace {

constexpr std::size_t kReadBytes = 1 << 12;

}  // namespace

std::string read_text_file(const std::string& path, std::string_view name, const TextFileKind& kind) {
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // opening a pipe must not wait
  TROUPE_CHECK_ERRNO(file, Code::invalid, name, ": cannot open ", kind.what, "; ", kind.advice);
  struct stat facts {};
  TROUPE_CHECK_ERRNO(::fstat(file.get(), &facts) == 0, Code::invalid, name, ": cannot look at ", kind.what);
  TROUPE_CHECK(S_ISREG(facts.st_mode), Code::invalid, name, ": is ",
               S_ISDIR(facts.st_mode) ? "a folder" : "not a regular file", "; ", kind.advice);
  // Memory for the size that the file has now, not for the largest one; some files have none, and others grow.
  std::string content;
  std::size_t filled = 0;
  while (filled <= kind.most_bytes) {
    if (filled == content.size()) {
      const std::size_t wanted = std::max(static_cast<std::size_t>(facts.st_size) + 1, filled + kReadBytes);
      content.resize(std::min<std::size_t>(wanted, kind.most_bytes + 1));
    }
    const ssize_t got = ::read(file.get(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    TROUPE_CHECK_ERRNO(got >= 0, Code::invalid, name, ": cannot read ", kind.what);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  TROUPE_CHECK(filled <= kind.most_bytes, Code::invalid, name, ": has ",
               std::max<std::uint64_t>(filled, static_cast<std::uint64_t>(facts.st_size)), " bytes; ", kind.limit);
  content.resize(filled);
  return content;
}

}  // namespace troupe::detail
