#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

// Text that people read or write.
namespace troupe {

/// Changes 'A' to 'Z' to lower case and leaves other bytes as they are.
std::string lower_case(std::string_view words);
/// Removes spaces, tabs and line ends at both ends.
std::string_view trimmed(std::string_view words) noexcept;
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
