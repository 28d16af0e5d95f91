#pragma once

#include <cstdint>
#include <span>

#include "runtime/data/find_data.hpp"

namespace troupe {

/// Incremented whenever the same seed gives other images.
inline constexpr std::uint32_t kDigitsVersion = 1;
inline constexpr std::uint32_t kDigitSide = 28;  // pixels
inline constexpr std::uint32_t kDigitPixels = kDigitSide * kDigitSide;

/// Draws sample `index` of the endless set `seed` into `image` [28, 28], ink 255 on background 0, and returns its
/// label. A digit has one of several shapes, whose strokes are jittered, bent, slanted, scaled and drawn with a pen of
/// varying width; it is centered by mass in a 20 x 20 box, like MNIST's. Depends only on (seed, index). Takes about 20
/// us.
std::uint8_t draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t, kDigitPixels> image);

/// Draws samples [first, first + labels.size()) with `threads` threads, including the caller's; `images` has room for
/// kDigitPixels each. `progress` may be empty and is called only on the caller's thread.
void draw_digits(std::uint64_t seed, std::uint64_t first, std::span<std::uint8_t> images,
                 std::span<std::uint8_t> labels, std::uint32_t threads, const DataProgress& progress);

/// How many cores this process may use; at least 1.
std::uint32_t count_allowed_cores() noexcept;

}  // namespace troupe
