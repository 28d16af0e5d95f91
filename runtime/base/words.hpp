#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

// Text that people read or write.
namespace troupe {

/// Changes 'A' to 'Z' to lower case and leaves other bytes as they are.
std::string lower_case(std::string_view words);
/// Removes spaces, tabs and line ends at both ends.
std::string_view trimmed(std::string_view words) noexcept;
/// The parts of `words` before each character `at`, and what is left behind the last one, if anything is.
std::vector<std::string> split(std::string_view words, char at);
/// The number that the whole text is, an integer in `base` or a decimal one; nothing: it is something else, or a Number
/// does not hold it.
template <class Number>
std::optional<Number> number_in(std::string_view text, int base = 10) noexcept {
  Number number{};
  const char* const end = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::is_floating_point_v<Number>)
    read = std::from_chars(text.data(), end, number);
  else
    read = std::from_chars(text.data(), end, number, base);
  return read.ec == std::errc{} && read.ptr == end ? std::optional{number} : std::nullopt;
}
/// 12,345
std::string grouped(std::uint64_t number);
/// Ascending numbers as "0-3,8".
std::string ranges(std::span<const std::uint32_t> numbers);
/// "30 s", "0.25 s".
std::string seconds(Clock::duration span);

/// `parts`, each as text() writes it, separated by `between`.
template <class Parts>
std::string joined(const Parts& parts, std::string_view between = ", ") {
  std::string all;
  bool first = true;
  for (const auto& part : parts) {
    all += first ? text(part) : text(between, part);
    first = false;
  }
  return all;
}

}  // namespace troupe
