#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::detail {

/// Reads a file by its path; empty if it does not exist.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// The number of cores whose time control groups (version 1 and 2) grant; 0: no known limit. The smallest of the
/// process's own group and all groups above it. `own_groups` is /proc/self/cgroup, `mounts` /proc/self/mountinfo.
double cpu_quota(std::string_view own_groups, std::string_view mounts, const FileReader& read);

/// The bytes of memory that control groups grant, found in the same way; the largest number: no known limit.
std::uint64_t memory_limit(std::string_view own_groups, std::string_view mounts, const FileReader& read);

}  // namespace troupe::detail
