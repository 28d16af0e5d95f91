#include "runtime/base/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMaxTextBytes = 1024;  // of the text in a lock's file
constexpr std::chrono::milliseconds kRetryEvery{20};

bool keeps_no_locks(int reason) noexcept {
  return reason == ENOLCK || reason == EOPNOTSUPP || reason == ENOSYS || reason == EINVAL;
}

/// The text that the lock's holder wrote, with unprintable characters replaced.
std::string holder_in(const Fd& file) {
  std::array<char, kMaxTextBytes> bytes{};
  const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  std::string said{bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  said.resize(std::min(said.find('\n'), said.size()));
  std::replace_if(
      said.begin(), said.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return said.empty() ? "a job that could not say who it is" : said;
}

std::string host() {
  const std::string name = host_name();
  return name.empty() ? "a host without a name" : name;
}

}  // namespace

FolderLock FolderLock::take(Blocking&, const std::string& folder, const char* name, const std::string& holder,
                            const std::string& cure, Deadline deadline) {
  const std::string path = folder + '/' + name;
  // Opened for writing, because NFS implements flock as a lock on a range of bytes, which needs that.
  Fd file{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)};
  TROUPE_CHECK_ERRNO(file, Code::environment, path, ": cannot be made or opened, and it keeps other jobs away; ", cure);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (keeps_no_locks(errno)) return {std::move(file), false};
    TROUPE_CHECK_ERRNO(errno == EWOULDBLOCK, Code::environment, path, ": cannot be locked");
    TROUPE_CHECK(!deadline.passed(), Code::environment, folder,
                 ": another job writes into this folder: ", holder_in(file), "; wait for its end, or ", cure);
    ::poll(nullptr, 0, static_cast<int>(kRetryEvery.count()));
  }
  FolderLock lock{std::move(file), true};
  lock.name(holder);
  return lock;
}

void FolderLock::name(const std::string& holder) const noexcept {
  if (!held_) return;
  const std::string said = fmt::format("process {} on {}, {}, since {:%Y-%m-%d %H:%M:%S} UTC\n", ::getpid(), host(),
                                       holder, fmt::gmtime(std::time(nullptr)));
  // On a full disk no name can be written; the lock is held all the same.
  if (::ftruncate(file_.get(), 0) != 0) return;
  [[maybe_unused]] const auto written = ::pwrite(file_.get(), said.data(), std::min(said.size(), kMaxTextBytes), 0);
  ::fdatasync(file_.get());  // so that other hosts can read it
}

}  // namespace troupe
