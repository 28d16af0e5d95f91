#include "runtime/checkpoint/finite.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

constexpr std::uint32_t kExponent = 0x7f800000;  // all ones: infinite or NaN
constexpr std::size_t kBlock = 4096;             // numbers that are checked together

std::uint32_t word_at(const std::byte* bytes, std::size_t index) noexcept {
  std::uint32_t word;
  std::memcpy(&word, bytes + index * sizeof word, sizeof word);
  return word;
}

/// Without a branch per number, so that the compiler uses vector instructions.
bool all_finite(const std::byte* bytes, std::size_t count) noexcept {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i)
    found |= static_cast<std::uint32_t>((word_at(bytes, i) & kExponent) == kExponent);
  return found == 0;
}

}  // namespace

std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> bytes) noexcept {
  const std::size_t count = bytes.size() / sizeof(float);
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t some = std::min(kBlock, count - first);
    const std::byte* const block = bytes.data() + first * sizeof(float);
    if (all_finite(block, some)) continue;
    for (std::size_t i = 0; i < some; ++i)
      if ((word_at(block, i) & kExponent) == kExponent) return first + i;
  }
  return std::nullopt;
}

}  // namespace troupe
