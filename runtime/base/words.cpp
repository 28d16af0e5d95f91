#include "runtime/base/words.hpp"

#include <chrono>
#include <cmath>

namespace troupe {

std::string lower_case(std::string_view words) {
  std::string lower{words};
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return lower;
}

std::string_view trimmed(std::string_view words) noexcept {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = words.find_first_not_of(kSpace);
  return first == words.npos ? std::string_view{} : words.substr(first, words.find_last_not_of(kSpace) - first + 1);
}

std::string seconds(Clock::duration span) {
  const double s = std::chrono::duration<double>(span).count();
  return text(s < 10 ? std::round(s * 100) / 100 : std::round(s), " s");
}

}  // namespace troupe
