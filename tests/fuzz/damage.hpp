#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace troupe::testing {

/// Damages good bytes: bits, words with extreme values, missing and added pieces.
inline void damage(std::vector<std::byte>& bytes, std::mt19937& dice) {
  for (std::uint32_t times = 1 + dice() % 4; times > 0 && !bytes.empty(); --times) {
    const std::size_t at = dice() % bytes.size();
    switch (dice() % 5) {
      case 0: bytes[at] ^= std::byte{static_cast<std::uint8_t>(1U << (dice() % 8))}; break;
      case 1: bytes[at] = static_cast<std::byte>(dice()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), 8, static_cast<std::byte>(dice())); break;
      case 4: {
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at & ~std::size_t{3});
        std::fill(first, first + std::min<std::ptrdiff_t>(4, bytes.end() - first), std::byte{0xff});
        break;
      }
    }
  }
}

}  // namespace troupe::testing
