#pragma once

#include <optional>
#include <string>

namespace troupe::detail {

/// The content of a file of the kernel's, without the line end, up to 1 MiB; nothing when it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

}  // namespace troupe::detail
