#pragma once

#include <string>

namespace troupe {

/// Whether a folder, a pipe, a device or a socket is at `path`, itself or behind symbolic links. Opening such a file
/// may wait without end, and it keeps nothing. False: a regular file, or nothing is there.
bool is_special_file(const std::string& path) noexcept;

/// Throws Error{environment} with the path and what is there if it is a special file.
void refuse_special_file(const std::string& path);

}  // namespace troupe
