#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

namespace troupe::detail {

/// The content of a file of the kernel, without the line end, up to 1 MiB; empty if it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);
/// The number with which such a file begins; empty also if it begins with none.
template <class Number>
std::optional<Number> number_in_file(const std::string& path) {
  const auto content = read_small_file(path);
  Number number{};
  const bool is_there =
      content && std::from_chars(content->data(), content->data() + content->size(), number).ec == std::errc{};
  return is_there ? std::optional{number} : std::nullopt;
}

}  // namespace troupe::detail
