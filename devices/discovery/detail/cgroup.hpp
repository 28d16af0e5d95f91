#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::detail {

/// Reads a file by its path; nothing when there is none.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// How many cores' worth of time control groups (version 1 and 2) grant, 0: no limit known. The least of the process's
/// own group and all above it. `own_groups` is /proc/self/cgroup, `mounts` /proc/self/mountinfo.
double cpu_quota(std::string_view own_groups, std::string_view mounts, const FileReader& read);

/// How many bytes of memory control groups grant, found in the same way; the largest number: no limit known.
std::uint64_t memory_limit(std::string_view own_groups, std::string_view mounts, const FileReader& read);

}  // namespace troupe::detail
