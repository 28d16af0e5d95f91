#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace troupe::testing {

/// Damages good bytes behind the first `from`: bits, words with extreme values, missing and added pieces.
inline void damage(std::vector<std::byte>& bytes, std::size_t from, std::mt19937& dice) {
  for (std::uint32_t times = 1 + dice() % 4; times > 0 && bytes.size() > from; --times) {
    const std::size_t at = from + dice() % (bytes.size() - from);
    switch (dice() % 5) {
      case 0: bytes[at] ^= std::byte{static_cast<std::uint8_t>(1U << (dice() % 8))}; break;
      case 1: bytes[at] = static_cast<std::byte>(dice()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), 8, static_cast<std::byte>(dice())); break;
      case 4: {
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(std::max(from, at & ~std::size_t{3}));
        std::fill(first, first + std::min<std::ptrdiff_t>(dice() % 2 == 0 ? 4 : 8, bytes.end() - first),
                  std::byte{0xff});
        break;
      }
    }
  }
}

}  // namespace troupe::testing
