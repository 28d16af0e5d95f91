#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>

#include "devices/cuda/kernels/kernel.hpp"
#include "runtime/model/f16.hpp"

// Stored numbers as f32 and back, with the bits of to_bf16, to_f16 and back.
namespace troupe::cuda {

/// How the numbers of a tensor are stored.
enum class Stored : std::uint32_t { f32, bf16, f16 };
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

TROUPE_KERNEL_BODY bool is_finite(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits >> 52 & 0x7ffU) != 0x7ffU;
}

/// Rounded to the nearest, ties to even; NaN stays NaN.
TROUPE_KERNEL_BODY std::uint16_t rounded(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1)) >> 16);
}
TROUPE_KERNEL_BODY float widened(std::uint16_t value) { return float_of(std::uint32_t{value} << 16); }

/// Likewise as `type`, which has 16 bits.
TROUPE_KERNEL_BODY std::uint16_t rounded(float value, Stored type) {
  return type == Stored::f16 ? to_f16(value) : rounded(value);
}

TROUPE_KERNEL_BODY float load(const void* from, Stored type, std::uint64_t index) {
  if (type == Stored::f32) return static_cast<const float*>(from)[index];
  const std::uint16_t value = static_cast<const std::uint16_t*>(from)[index];
  return type == Stored::f16 ? from_f16(value) : widened(value);
}
TROUPE_KERNEL_BODY void store(void* to, Stored type, std::uint64_t index, float value) {
  if (type == Stored::f32)
    static_cast<float*>(to)[index] = value;
  else
    static_cast<std::uint16_t*>(to)[index] = rounded(value, type);
}

/// A factor that stands in the GPU's memory, times a constant.
struct Factor {
  const float* at = nullptr;  // null: the factor is 1
  float times = 1;
  std::uint32_t reserved = 0;
};
TROUPE_KERNEL_BODY float value_of(const Block& block, const Factor& factor) {
  return factor.at == nullptr ? 1.0F : *block.at(factor.at) * factor.times;
}

/// a b + c, on a GPU with one rounding.
TROUPE_KERNEL_BODY float multiply_add(float a, float b, float c) {
#if defined(__CUDACC__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

/// Divides numbers below 2^31 by one number without a division. Source: Granlund, Montgomery 1994 (Division by
/// invariant integers using multiplication), figure 4.1.
struct Divisor {
  std::uint32_t divisor;
  std::uint32_t factor;
  std::uint32_t shift;
};
inline Divisor divisor_of(std::uint32_t divisor) {
  std::uint32_t shift = 0;
  while ((std::uint64_t{1} << shift) < divisor) ++shift;
  const std::uint64_t over = (std::uint64_t{1} << shift) - divisor;
  return {divisor, static_cast<std::uint32_t>((over << 32) / divisor + 1), shift};
}
TROUPE_KERNEL_BODY std::uint32_t quotient(std::uint32_t number, const Divisor& by) {
  const auto high = static_cast<std::uint32_t>((std::uint64_t{number} * by.factor) >> 32);
  return (high + number) >> by.shift;
}
/// The quotient; `number` becomes the remainder.
TROUPE_KERNEL_BODY std::uint32_t divide(std::uint32_t& number, const Divisor& by) {
  const std::uint32_t found = quotient(number, by);
  number -= found * by.divisor;
  return found;
}

}  // namespace troupe::cuda
