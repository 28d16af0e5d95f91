#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// The kernel's random name for the time since this host was started: 36 characters, the same for all its containers.
/// Throws Error{environment} where /proc cannot be read.
std::string boot_id();
/// The inode of this process's pid namespace. Throws Error{environment} where /proc cannot be read.
std::uint64_t pid_namespace();
/// The inode of the calling thread's network namespace: a thread may have entered another one than its process.
/// Throws Error{environment} where /proc cannot be read.
std::uint64_t network_namespace();
/// What the kernel calls this host; empty where it says nothing.
std::string host_name();

}  // namespace troupe
