#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

// Text for people and from people.
namespace troupe {

/// With 'A' to 'Z' in lower case; other bytes as they are.
std::string lower_case(std::string_view words);
/// Without the spaces, tabs and ends of lines around it.
std::string_view trimmed(std::string_view words) noexcept;
/// "0-3,8" of ascending numbers.
std::string ranges(std::span<const std::uint32_t> numbers);
/// "30 s", "0.25 s"
std::string seconds(Clock::duration span);

/// `parts`, as text() writes each, with `between` between them.
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
