#include "runtime/base/host_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

std::uint64_t inode(const char* path) {
  struct stat about {};
  TROUPE_CHECK_ERRNO(::stat(path, &about) == 0, Code::environment, "cannot look at ", path, "; is /proc mounted?");
  return about.st_ino;
}

}  // namespace

std::string boot_id() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  std::string id;
  std::ifstream{kPath} >> id;
  TROUPE_CHECK(!id.empty(), Code::environment, "cannot read ", kPath,
               ", by which processes know that they are on one host; is /proc mounted?");
  return id;
}

std::uint64_t pid_namespace() { return inode("/proc/self/ns/pid"); }

std::uint64_t network_namespace() { return inode("/proc/thread-self/ns/net"); }

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace troupe
