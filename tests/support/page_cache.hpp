#pragma once

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/fd.hpp"

namespace troupe::testing {

/// Whether files of a folder can be written past the page cache.
inline bool has_direct_writes(const std::string& folder) {
  struct statfs disk {};
  const Fd probe(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
  return probe && ::statfs(folder.c_str(), &disk) == 0 && disk.f_type != TMPFS_MAGIC;
}

/// How many pages of a file the page cache holds; -1: it cannot be looked at.
inline long cached_pages(const std::string& path) {
  constexpr std::size_t kPageBytes = 4096;
  struct stat about {};
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &about) != 0) return -1;
  const auto size_bytes = static_cast<std::size_t>(about.st_size);
  void* const mapped = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return -1;
  std::vector<unsigned char> pages((size_bytes + kPageBytes - 1) / kPageBytes);
  const bool told = ::mincore(mapped, size_bytes, pages.data()) == 0;
  ::munmap(mapped, size_bytes);
  return told ? std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }) : -1;
}

}  // namespace troupe::testing
