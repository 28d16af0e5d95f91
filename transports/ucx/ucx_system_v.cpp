// UCX makes System V shared memory segments, which remain when the process that made them is killed (docs/adr/0018).
//
// The shmget() below replaces the C library's in programs that link this file. UCX's test for memory hooks only needs
// its calls to be made, not to succeed: it gets the number of a segment that does not exist. UCX's other libraries are
// told that there is no memory for segments, and use other memory. All other callers get what they ask for.

#include <dlfcn.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <string_view>

#include "transports/ucx/detail/system_v.hpp"

namespace {

constexpr int kNoSegment = 0x7fffffff;  // larger than every number that the kernel gives (its index part ends at 2^24)

/// The file name of the library that contains `code`; empty: unknown.
std::string_view library_of(const void* code) noexcept {
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view path{info.dli_fname};
  return path.substr(path.rfind('/') + 1);
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) noexcept {
  for (const std::string_view beginning : beginnings)
    if (name.starts_with(beginning)) return true;
  return false;
}

}  // namespace

extern "C" [[gnu::visibility("default"), gnu::used]] int shmget(key_t key, std::size_t size, int flags) noexcept {
  const std::string_view caller = library_of(__builtin_return_address(0));
  if (caller.starts_with("libucm")) return kNoSegment;
  if (starts_with_any(caller, {"libucs", "libuct", "libucp"})) {
    errno = ENOMEM;  // what they expect if no huge pages are left; they then print nothing
    return -1;
  }
  return static_cast<int>(::syscall(SYS_shmget, key, size, flags));
}

namespace troupe {
void keep_ucx_from_system_v() noexcept {}
}  // namespace troupe
