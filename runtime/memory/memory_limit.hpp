#pragma once

#include <cstdint>

namespace troupe {

/// The memory that this process could ever take: the host's, or the lowest limit of this process's cgroups (v2).
std::uint64_t memory_limit_bytes();

}  // namespace troupe
