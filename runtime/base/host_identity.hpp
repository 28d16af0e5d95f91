#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// The kernel's random id, new each time the host boots: 36 characters, the same in all containers of the host.
/// Throws Error{environment} where /proc cannot be read.
std::string boot_id();
/// The inode of this process's pid namespace. Throws Error{environment} where /proc cannot be read.
std::uint64_t pid_namespace();
/// The inode of the calling thread's network namespace; a thread can be in another namespace than its process.
/// Throws Error{environment} where /proc cannot be read.
std::uint64_t network_namespace();
/// The kernel's name for this host; empty if it gives none.
std::string host_name();

}  // namespace troupe
