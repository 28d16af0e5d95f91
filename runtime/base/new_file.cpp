#include "runtime/base/new_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0666;  // minus the umask

/// For fewer bytes, bypassing the page cache does not pay.
constexpr std::size_t kLeastDirect = std::size_t{128} << 10;

int link_nameless(const char* self, const char* name) noexcept {
  return ::linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

int rename_or_unlink(const char* name, const char* target) noexcept {
  if (::rename(name, target) == 0) return 0;
  const int reason = errno;
  ::unlink(name);
  return reason;
}

/// Replaces a file by a nameless one: links it to `name` and renames that, in a child process. A kill of this
/// process or its group does not reach the child, so `name` is not left behind between the two calls. Returns 0 or
/// errno. Where the application ignores SIGCHLD, or waits for all children itself, the child's exit code is lost; then
/// `reason` has it, which the child writes in this process's memory.
int replace_by_nameless(const char* self, const char* name, const char* target) noexcept {
  // vfork, because it copies no page tables: the child makes only system calls, and this thread stops until the child
  // has ended.
  volatile int reason = EINTR;
  const pid_t child = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (child == 0) {
    ::setpgid(0, 0);
    const int linked = link_nameless(self, name);
    ::close_range(0, ~0U, 0);  // a rename may take long, and peers of a dead process wait until its sockets are closed
    reason = linked != 0 ? linked : rename_or_unlink(name, target);
    ::_exit(reason);
  }
  int status = 0;
  if (child < 0) return errno;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return errno == ECHILD ? reason : errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

constexpr int kMostLinks = 40;  // the kernel's limit

/// True for an entry of /proc such as /proc/self/fd/1, the target of /dev/stdout.
bool is_in_proc(const fs::path& path) {
  struct statfs about {};
  const fs::path folder = path.parent_path();
  return ::statfs(folder.empty() ? "." : folder.c_str(), &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

/// The target of symbolic links, whether or not a file exists there. Stops at an entry of /proc, because the text of
/// such a link is not a path.
std::string followed(const std::string& target) {
  fs::path path{target};
  std::error_code error;
  for (int links = 0; links < kMostLinks && !is_in_proc(path); ++links) {
    const fs::path next = fs::read_symlink(path, error);
    if (error) break;
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path.string();
}

/// Duplicates an open file of this process, given its path in /proc. The duplicate has the same position and flags;
/// opening the path again would begin at the file's start, and a socket cannot be opened. -1: it is not such a path.
int duplicate_of(const fs::path& path) {
  std::error_code error;
  if (fs::canonical(path.parent_path(), error) != fs::canonical("/proc/self/fd", error) || error) return -1;
  const auto fd = number_in<int>(path.filename().native());
  return fd ? ::fcntl(*fd, F_DUPFD_CLOEXEC, 0) : -1;
}

/// A pipe that nobody reads, and some devices, would let a blocking open wait without end; writing may wait. -1: errno
/// says why.
int open_in_place(const std::string& target) noexcept {
  const int fd = ::open(target.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

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

NewFile::NewFile(const std::string& target) : target_(followed(target)) {
  struct stat there {};
  const bool exists = ::stat(target_.c_str(), &there) == 0;
  TROUPE_CHECK(!exists || !S_ISDIR(there.st_mode), Code::environment, target, ": this is a folder; name a file in it");
  const bool open_file = is_in_proc(target_);
  if (open_file || (exists && !S_ISREG(there.st_mode))) {
    in_place_ = true;
    if (open_file) fd_ = duplicate_of(target_);
    if (fd_ < 0) fd_ = open_in_place(target_);
    TROUPE_CHECK(fd_ >= 0 || errno != ENXIO, Code::environment, target,
                 ": this is a pipe or a device, and nothing reads what would be written to it");
    TROUPE_CHECK_ERRNO(fd_ >= 0, Code::environment, target, ": cannot be written");
    return;
  }
  const fs::path folder = fs::path{target_}.parent_path();
  fd_ = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (fd_ >= 0) return;
  name_ = hidden_name();
  fd_ = ::open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode);
  TROUPE_CHECK_ERRNO(fd_ >= 0, Code::environment, target_, ": cannot be written");
}

NewFile::~NewFile() {
  ::close(fd_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
  bytes = bytes.subspan(write_direct(bytes));
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    TROUPE_CHECK_ERRNO(n > 0, Code::environment, target_, ": cannot be written (is the disk full?)");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    size_bytes_ += static_cast<std::size_t>(n);
  }
}

/// Returns how many bytes it has written: whole blocks, or none if the file system or the position of the bytes does
/// not allow it. The caller writes the rest with ordinary writes, which also report the reason of a failure.
std::size_t NewFile::write_direct(std::span<const std::byte> bytes) {
  const bool fits =
      !in_place_ && size_bytes_ % kBlockBytes == 0 && std::bit_cast<std::uintptr_t>(bytes.data()) % kBlockBytes == 0;
  const int flags = fits && bytes.size() >= kLeastDirect ? ::fcntl(fd_, F_GETFL) : -1;
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return 0;
  const std::size_t whole = bytes.size() / kBlockBytes * kBlockBytes;
  std::size_t done = 0;
  while (done < whole && done % kBlockBytes == 0) {
    const ssize_t n = ::write(fd_, bytes.data() + done, whole - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  // The incomplete block at the end can only be written through the page cache.
  TROUPE_CHECK_ERRNO(::fcntl(fd_, F_SETFL, flags) == 0, Code::environment, target_, ": cannot be written");
  size_bytes_ += done;
  return done;
}

void NewFile::sync() {
  if (in_place_) return;
  TROUPE_CHECK_ERRNO(::fsync(fd_) == 0, Code::environment, target_, ": cannot be synced (is the disk full?)");
}

void NewFile::publish() {
  if (in_place_) return;
  int reason = 0;
  if (!name_.empty()) {
    reason = rename_or_unlink(std::exchange(name_, {}).c_str(), target_.c_str());
  } else {
    const std::string self = text("/proc/self/fd/", fd_);
    reason = link_nameless(self.c_str(), target_.c_str());
    // Only a rename can replace a file, and a rename needs an existing name.
    if (reason == EEXIST) reason = replace_by_nameless(self.c_str(), hidden_name().c_str(), target_.c_str());
  }
  errno = reason;
  TROUPE_CHECK_ERRNO(reason == 0, Code::environment, target_, ": cannot be replaced");
}

std::string NewFile::hidden_name() const {
  std::random_device dice;  // another writer may have the same process number in another namespace
  const fs::path target{target_};
  return (target.parent_path() / text(".", target.filename().string(), ".", ::getpid(), "-", dice(), ".tmp")).string();
}

bool write_new_file(const std::string& target, std::string_view content) {
  NewFile file{target};
  file.write(std::as_bytes(std::span{content}));
  file.publish();
  return file.in_place();
}

bool is_special_file(const std::string& path) noexcept { return special_kind(path).has_value(); }

void refuse_special_file(const std::string& path) {
  if (const auto kind = special_kind(path))
    fail(Code::environment, text(path, ": this is ", words_for(*kind), ", and a regular file is needed; move it away"));
}

}  // namespace troupe
