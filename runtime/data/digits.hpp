#pragma once

#include <cstdint>
#include <span>

#include "runtime/data/find.hpp"

namespace troupe {

/// Grows whenever the same seed would give other images.
inline constexpr std::uint32_t kDigitsVersion = 1;
inline constexpr std::uint32_t kDigitSide = 28;  // pixels
inline constexpr std::uint32_t kDigitPixels = kDigitSide * kDigitSide;

/// Draws sample `index` of the endless set `seed` into `image` [28, 28], ink 255 on ground 0, and returns its label: a
/// digit from one of several ways to write it, by strokes that are jittered, bent, slanted, scaled and drawn with a pen
/// of varying width, then centred by mass in a 20 x 20 box as MNIST's are. It depends on (seed, index) only. About 20
/// us.
std::uint8_t draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t, kDigitPixels> image);

/// Draws samples [first, first + labels.size()) with `threads` threads, the caller's included; `images` has room for
/// kDigitPixels each. `progress` may be empty and is called on the caller's thread only.
void draw_digits(std::uint64_t seed, std::uint64_t first, std::span<std::uint8_t> images,
                 std::span<std::uint8_t> labels, std::uint32_t threads, const DataProgress& progress);

/// How many cores the system lets this process use; at least 1.
std::uint32_t count_allowed_cores() noexcept;

}  // namespace troupe
