#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace troupe {

/// A generator without state: the number for (key, counter) is always the same, so work can be divided anywhere.
/// Source: Steele, Lea, Flood 2014 (Fast splittable pseudorandom number generators): the SplitMix64 finalizer.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) noexcept {
  return mix(mix(key) ^ counter);
}
/// Joins two keys into one.
constexpr std::uint64_t sub_key(std::uint64_t key, std::uint64_t part) noexcept { return mix(mix(key) + part); }
/// In (0, 1).
constexpr double random_unit(std::uint64_t key, std::uint64_t counter) noexcept {
  return (static_cast<double>(random_bits(key, counter) >> 11) + 0.5) * 0x1p-53;
}
/// In [0, bound), bound > 0; the bias is below 2^-32 for bounds below 2^32.
constexpr std::uint64_t random_below(std::uint64_t key, std::uint64_t counter, std::uint64_t bound) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(random_bits(key, counter)) * bound) >> 64);
}
/// N(0, 1). Source: Box, Muller 1958.
inline double random_normal(std::uint64_t key, std::uint64_t counter) noexcept {
  const double radius = std::sqrt(-2.0 * std::log(random_unit(key, 2 * counter)));
  return radius * std::cos(2.0 * std::numbers::pi * random_unit(key, 2 * counter + 1));
}

}  // namespace troupe
