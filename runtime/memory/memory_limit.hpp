#pragma once

#include <cstdint>

namespace troupe {

/// The most memory that this process could ever use: the host's, or the lowest limit of this process's cgroups (v2).
std::uint64_t memory_limit_bytes();

}  // namespace troupe
