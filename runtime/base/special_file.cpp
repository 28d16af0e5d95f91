#include "runtime/base/special_file.hpp"

#include <sys/stat.h>

#include <optional>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

/// Nothing: a regular file, or no file.
std::optional<mode_t> special_kind(const std::string& path) noexcept {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0 || S_ISREG(about.st_mode)) return {};
  return about.st_mode & S_IFMT;
}

const char* words_for(mode_t kind) noexcept {
  switch (kind) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
  }
}

}  // namespace

bool is_special_file(const std::string& path) noexcept { return special_kind(path).has_value(); }

void refuse_special_file(const std::string& path) {
  if (const auto kind = special_kind(path))
    fail(Code::environment, text(path, ": this is ", words_for(*kind), ", and a regular file is needed; move it away"));
}

}  // namespace troupe
