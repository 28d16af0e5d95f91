#include "runtime/memory/detail/memory_left.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "runtime/memory/memory_limit.hpp"

namespace troupe {
namespace {

constexpr const char* kCgroups = "/sys/fs/cgroup";

/// The number after `key` in a file of lines "key number".
std::optional<std::uint64_t> number_after(const std::filesystem::path& file, std::string_view key) {
  std::ifstream in{file};
  std::string word;
  std::uint64_t number = 0;
  while (in >> word) {
    if (word == key) return in >> number ? std::optional{number} : std::nullopt;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in_file(const std::filesystem::path& file) {
  std::ifstream in{file};
  std::uint64_t number = 0;
  return in >> number ? std::optional{number} : std::nullopt;  // "max" is not a number
}

/// Page cache that the kernel would reclaim first counts as free.
std::optional<std::uint64_t> left_in_cgroup(const std::filesystem::path& cgroup) {
  const auto limit = number_in_file(cgroup / "memory.max");
  const auto used = number_in_file(cgroup / "memory.current");
  if (!limit || !used) return std::nullopt;
  const std::uint64_t cache = std::min(*used, number_after(cgroup / "memory.stat", "inactive_file").value_or(0));
  return *limit - std::min(*limit, *used - cache);
}

/// The process's own cgroup as /proc shows it; "/" is the root.
std::filesystem::path own_cgroup() {
  std::ifstream in{"/proc/self/cgroup"};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

}  // namespace

MemoryLeft memory_left() {
  MemoryLeft least{std::numeric_limits<std::uint64_t>::max(), "nothing"};
  if (const auto kilobytes = number_after("/proc/meminfo", "MemAvailable:")) {
    least = {*kilobytes * 1024, "MemAvailable of /proc/meminfo"};
  }
  for (auto cgroup = own_cgroup();; cgroup = cgroup.parent_path()) {
    const auto left = left_in_cgroup(kCgroups + cgroup.string());
    if (left && *left < least.size_bytes) least = {*left, "memory.max of cgroup " + cgroup.string()};
    if (cgroup == "/" || cgroup.empty()) return least;
  }
}

std::uint64_t memory_limit_bytes() {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  if (const auto kilobytes = number_after("/proc/meminfo", "MemTotal:")) least = *kilobytes * 1024;
  for (auto cgroup = own_cgroup();; cgroup = cgroup.parent_path()) {
    least = std::min(least, number_in_file(kCgroups + cgroup.string() + "/memory.max").value_or(least));
    if (cgroup == "/" || cgroup.empty()) return least;
  }
}

}  // namespace troupe
