#include <dirent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "runtime/base/error.hpp"
#include "transports/ucx/detail/shortage.hpp"

namespace troupe {
namespace {

constexpr const char* kShared = "/dev/shm";
/// UCX 1.13 puts the landing buffers of each of the two workers into shared memory: with kSharedBuffers about 1.1 MB.
constexpr std::uint64_t kSharedBytes = std::uint64_t{4} << 20;
/// If fewer descriptors than this are free, one of UCX's transports probably did not get its own.
constexpr std::uint64_t kFewFiles = 12;

/// Of this process; 0 if unknown.
std::uint64_t count_open_files() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return errno == EMFILE ? UINT32_MAX : 0;
  std::uint64_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count < 3 ? 0 : count - 3;  // ".", ".." and the folder itself
}

bool has_space(const char* folder, std::uint64_t bytes) {
  struct statvfs found {};
  return ::statvfs(folder, &found) == 0 && (found.f_flag & ST_RDONLY) == 0 &&
         std::uint64_t{found.f_bavail} * found.f_frsize >= bytes;
}

}  // namespace

std::string other_shared_folder(std::size_t processes) {
  if (std::getenv("UCX_POSIX_DIR") != nullptr || has_space(kShared, processes * kSharedBytes)) return {};
  for (const char* const folder : std::initializer_list<const char*>{std::getenv("TMPDIR"), "/tmp", "/var/tmp"}) {
    if (folder != nullptr && has_space(folder, kSharedBytes) && ::access(folder, W_OK) == 0) return folder;
  }
  return {};  // UCX reports what it lacks
}

std::string ucx_shortage(UcxMeans means) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 &&
      files.rlim_cur - std::min(files.rlim_cur, count_open_files()) < kFewFiles) {
    return text("this process has almost all the ", files.rlim_cur,
                " files open that it may; raise the limit (`ulimit -n 1024`)");
  }
  constexpr const char* kCure =
      " (`mount -o remount,size=1g /dev/shm`, `docker run --shm-size=1g`), or set cluster.transport = \"tcp\"";
  struct statvfs shared {};
  if (means != UcxMeans::tcp) {
    if (::statvfs(kShared, &shared) != 0) return text("there is no ", kShared, "; mount a tmpfs there", kCure);
    if ((shared.f_flag & ST_RDONLY) != 0) return text(kShared, " is read-only; make it writable", kCure);
    const std::uint64_t left = std::uint64_t{shared.f_bavail} * shared.f_frsize;
    if (left < kSharedBytes)
      return text(kShared, " has ", left, " bytes left, too few for its buffers; make it larger", kCure);
  }
  return "the network device may not exist here; look at cluster.transport and, if it is set, UCX_NET_DEVICES";
}

}  // namespace troupe
