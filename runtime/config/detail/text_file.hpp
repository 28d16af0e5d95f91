#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::detail {

/// A kind of file, in the words of messages.
struct TextFileKind {
  std::string_view what;    // "the host file"
  std::string_view advice;  // what to give if the path is a folder or a device
  std::size_t most_bytes;
  std::string limit;  // "a host file has at most 100"
};
/// The whole content of a file, called `name` in messages. Throws Error{invalid} if it cannot be read, is not a regular
/// file, or is too large.
std::string read_text_file(const std::string& path, std::string_view name, const TextFileKind& kind);

}  // namespace troupe::detail
