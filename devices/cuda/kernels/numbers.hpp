#pragma once

#include <cstdint>
#include <cstring>

#include "devices/cuda/kernels/kernel.hpp"

// Stored numbers as f32 and back, with the bits of to_bf16 and from_bf16.
namespace troupe::cuda {

/// How the numbers of a tensor are stored.
enum class Stored : std::uint32_t { f32, bf16 };
constexpr std::uint64_t bytes_of(Stored type) noexcept { return type == Stored::f32 ? 4 : 2; }

TROUPE_KERNEL_BODY std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
TROUPE_KERNEL_BODY float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
TROUPE_KERNEL_BODY bool is_finite(float value) { return (bits_of(value) & 0x7f800000U) != 0x7f800000U; }

/// Rounded to the nearest, ties to even; NaN stays NaN.
TROUPE_KERNEL_BODY std::uint16_t rounded(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1)) >> 16);
}
TROUPE_KERNEL_BODY float widened(std::uint16_t value) { return float_of(std::uint32_t{value} << 16); }

TROUPE_KERNEL_BODY float load(const void* from, Stored type, std::uint64_t index) {
  if (type == Stored::f32) return static_cast<const float*>(from)[index];
  return widened(static_cast<const std::uint16_t*>(from)[index]);
}
TROUPE_KERNEL_BODY void store(void* to, Stored type, std::uint64_t index, float value) {
  if (type == Stored::f32)
    static_cast<float*>(to)[index] = value;
  else
    static_cast<std::uint16_t*>(to)[index] = rounded(value);
}

}  // namespace troupe::cuda
