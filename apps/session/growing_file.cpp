#include "apps/session/growing_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "runtime/base/error.hpp"
#include "runtime/base/new_file.hpp"

namespace troupe {

bool GrowingFile::is_there() const {
  if (!file_) return false;
  struct stat now {};
  TROUPE_CHECK_ERRNO(::fstat(file_.get(), &now) == 0, Code::environment, "cannot look at ", path_);
  return now.st_nlink != 0;
}

void GrowingFile::begin(std::string_view bytes) {
  refuse_special_file(path_);
  const std::string all = std::string{bytes} + end_;
  write_new_file(path_, all);
  file_ = Fd{::open(path_.c_str(), O_WRONLY | O_CLOEXEC)};
  TROUPE_CHECK_ERRNO(file_, Code::environment, "cannot open ", path_, " that was written just now");
  size_bytes_ = all.size();
}

void GrowingFile::append(std::string_view bytes) {
  struct stat now {};
  TROUPE_CHECK_ERRNO(::fstat(file_.get(), &now) == 0, Code::environment, "cannot look at ", path_);
  TROUPE_CHECK(static_cast<std::uint64_t>(now.st_size) == size_bytes_, Code::environment, path_,
               " was changed by another process");
  const std::string tail = std::string{bytes} + end_;
  const auto at = static_cast<off_t>(size_bytes_ - end_.size());
  const ssize_t written = ::pwrite(file_.get(), tail.data(), tail.size(), at);
  if (written == static_cast<ssize_t>(tail.size())) {
    size_bytes_ += bytes.size();
    return;
  }
  const int reason = written < 0 ? errno : ENOSPC;
  // Restores the ending: the file has space for it, since it was there before.
  [[maybe_unused]] const auto ended = ::pwrite(file_.get(), end_.data(), end_.size(), at);
  [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(size_bytes_));
  errno = reason;
  fail_errno(Code::environment, text("cannot write ", path_));
}

std::string bytes_of(const std::string& path) {
  if (is_special_file(path)) return {};
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace troupe
