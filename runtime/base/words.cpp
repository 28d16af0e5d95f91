#include "runtime/base/words.hpp"

#include <chrono>
#include <cmath>
#include <sstream>

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

std::vector<std::string> split(std::string_view words, char at) {
  std::vector<std::string> parts;
  std::istringstream in{std::string{words}};
  for (std::string part; std::getline(in, part, at);) parts.push_back(std::move(part));
  return parts;
}

std::string seconds(Clock::duration span) {
  const double s = std::chrono::duration<double>(span).count();
  return text(s < 10 ? std::round(s * 100) / 100 : std::round(s), " s");
}

std::string grouped(std::uint64_t number) {
  std::string out = std::to_string(number);
  for (std::size_t i = out.size(); i > 3; i -= 3) out.insert(i - 3, ",");
  return out;
}

std::string ranges(std::span<const std::uint32_t> numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += text(out.empty() ? "" : ",", numbers[i]);
    if (last > i) out += text('-', numbers[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace troupe
