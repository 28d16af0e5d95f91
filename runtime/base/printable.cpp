#include "runtime/base/printable.hpp"

#include <cstddef>

namespace troupe {
namespace {

/// The bytes of the UTF-8 letter with which `bytes` begins; 0: there is none, or a control character. Source: RFC 3629,
/// section 4.
std::size_t letter_bytes(std::string_view bytes) noexcept {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return at(i) >= low && at(i) <= high;
  };
  const unsigned first = at(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t' ? 1 : 0;
  if (first >= 0xc2 && first <= 0xdf) return follows(1, first == 0xc2 ? 0xa0 : 0x80) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef)
    return follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
  if (first >= 0xf0 && first <= 0xf4)
    return follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) && follows(2) && follows(3) ? 4 : 0;
  return 0;
}

}  // namespace

std::string printable(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  while (!bytes.empty()) {
    const std::size_t letter = letter_bytes(bytes);
    const auto first = static_cast<unsigned char>(bytes.front());
    if (letter > 0)
      out += bytes.substr(0, letter);
    else
      out += {'\\', 'x', kDigits[first >> 4U], kDigits[first & 15U]};
    bytes.remove_prefix(letter > 0 ? letter : 1);
  }
  return out;
}

}  // namespace troupe
