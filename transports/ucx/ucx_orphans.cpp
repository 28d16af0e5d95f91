#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "transports/ucx/ucx_transport.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// The prefix of the files of UCX's shared memory, which it unlinks as soon as they are written.
constexpr const char* kPrefix = "ucx_shm_posix_";

/// The entries of a folder; none if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (auto at = fs::directory_iterator{folder, none}; !none && at != fs::directory_iterator{}; at.increment(none))
    found.push_back(at->path());
  return found;
}

bool is_number(const std::string& name) { return name.find_first_not_of("0123456789") == std::string::npos; }

}  // namespace

std::size_t remove_ucx_orphans() noexcept try {
  std::vector<std::string> files;
  for (const fs::path& file : entries("/dev/shm")) {
    struct stat about {};
    if (file.filename().string().starts_with(kPrefix) && ::lstat(file.c_str(), &about) == 0 &&
        about.st_uid == ::geteuid())
      files.push_back(file);
  }
  if (files.empty()) return 0;
  // A process that makes such a file has it open until it is unlinked, and files are listed before processes. Therefore
  // a file that no process has open will never be unlinked by its maker.
  for (const fs::path& process : entries("/proc")) {
    if (!is_number(process.filename())) continue;
    for (const fs::path& open : entries(process / "fd")) {
      std::error_code gone;
      const std::string target = fs::read_symlink(open, gone);
      if (!gone) std::erase(files, target);
    }
  }
  return static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const std::string& file) { return ::unlink(file.c_str()) == 0; }));
} catch (const std::exception&) {
  return 0;  // no memory: the next call finds them
}

}  // namespace troupe
