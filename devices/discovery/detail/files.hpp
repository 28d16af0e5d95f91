#pragma once

#include <optional>
#include <string>

namespace troupe::detail {

/// The content of a file of the kernel, without the line end, up to 1 MiB; empty if it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

}  // namespace troupe::detail
