#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>

#include "runtime/data/idx.hpp"
#include "runtime/error.hpp"

namespace troupe {
namespace {

constexpr mode_t kMode = 0644;

/// A file in the making, next to its final name. Until publish() it has no name at all, or a hidden one where the file
/// system knows no nameless files; the destructor takes that away.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& target) : target_(target) {
    const auto folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path{"."};
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
    if (fd_ >= 0) return;
    name_ = hidden_name();
    fd_ = ::open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode);
    TROUPE_CHECK_ERRNO(fd_ >= 0, Code::environment, target.string(), ": cannot be written");
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    ::close(fd_);
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  void write(std::span<const std::uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      TROUPE_CHECK_ERRNO(n > 0, Code::environment, target_.string(), ": cannot be written (is the disk full?)");
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  /// Syncs the bytes, then gives them their name, in place of whatever has it.
  void publish() {
    TROUPE_CHECK_ERRNO(::fsync(fd_) == 0, Code::environment, target_.string(),
                       ": cannot be synced (is the disk full?)");
    if (name_.empty()) {
      const std::string self = text("/proc/self/fd/", fd_);
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, target_.c_str(), AT_SYMLINK_FOLLOW) == 0) return;
      TROUPE_CHECK_ERRNO(errno == EEXIST, Code::environment, target_.string(), ": cannot be written");
      const std::string name = hidden_name();  // only a rename replaces
      TROUPE_CHECK_ERRNO(::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0,
                         Code::environment, target_.string(), ": cannot be written");
      name_ = name;
    }
    TROUPE_CHECK_ERRNO(::rename(name_.c_str(), target_.c_str()) == 0, Code::environment, target_.string(),
                       ": cannot be replaced");
    name_.clear();
  }

 private:
  std::string hidden_name() const {
    std::random_device dice;  // other writers may have the same process number in another namespace
    return (target_.parent_path() / text(".", target_.filename().string(), ".", ::getpid(), "-", dice(), ".tmp"))
        .string();
  }

  std::filesystem::path target_;
  std::string name_;
  int fd_ = -1;
};

void put_big_endian(std::vector<std::uint8_t>& head, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) head.push_back(static_cast<std::uint8_t>(number >> shift));
}

}  // namespace

void write_idx(const std::string& file, const IdxHeader& header, std::span<const std::uint8_t> content) {
  TROUPE_CHECK(content.size() == header.content_bytes(), Code::invalid, file, ": ", content.size(),
               " bytes given, the header announces ", header.content_bytes());
  std::vector<std::uint8_t> head;
  put_big_endian(head, static_cast<std::uint32_t>(header.kind));
  put_big_endian(head, header.count);
  if (header.kind == IdxKind::images) {
    put_big_endian(head, header.height);
    put_big_endian(head, header.width);
  }
  NewFile out{file};
  out.write(head);
  out.write(content);
  out.publish();
}

}  // namespace troupe
