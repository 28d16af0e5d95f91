#pragma once

#include <cstdint>
#include <cstring>

#include "runtime/base/any_processor.hpp"

// IEEE 754 binary16 as bits, with the same results on every processor, whatever its modes for denormals. A GPU has
// instructions for both; without them the same is computed with integers.
namespace troupe {

/// Rounded to the nearest, ties to even; subnormals are kept; from 65520 on it is infinity. Any NaN becomes 0x7fff.
TROUPE_ANY_PROCESSOR inline std::uint16_t to_f16(float value) noexcept {
#if defined(__CUDA_ARCH__)
  std::uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return 0x7fff;
  if (size >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (size >= 0x38800000U) {  // from 2^-14 on: another bias of the exponent
    const std::uint32_t biased = size - 0x38000000U;
    return static_cast<std::uint16_t>(sign | ((biased + 0xfffU + ((biased >> 13) & 1U)) >> 13));
  }
  if (size <= 0x33000000U) return static_cast<std::uint16_t>(sign);  // up to 2^-25: half of the smallest
  const std::uint32_t mantissa = (size & 0x7fffffU) | 0x800000U, shift = 126U - (size >> 23);
  const std::uint32_t half = std::uint32_t{1} << (shift - 1), rest = mantissa & ((half << 1) - 1);
  const std::uint32_t whole = mantissa >> shift;
  return static_cast<std::uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1U) != 0) ? 1U : 0U)));
#endif
}

/// Any NaN becomes 0x7fffffff.
TROUPE_ANY_PROCESSOR inline float from_f16(std::uint16_t value) noexcept {
#if defined(__CUDA_ARCH__)
  float widened;
  asm("cvt.f32.f16 %0, %1;" : "=f"(widened) : "h"(value));
  return widened;
#else
  const std::uint32_t sign = std::uint32_t{value & 0x8000U} << 16, exponent = (value >> 10) & 0x1fU;
  const std::uint32_t mantissa = value & 0x3ffU;
  std::uint32_t bits = sign | (exponent + 112U) << 23 | mantissa << 13;
  if (exponent == 0x1f) bits = mantissa == 0 ? sign | 0x7f800000U : 0x7fffffffU;
  if (exponent == 0) {
    const float size = static_cast<float>(mantissa) * 0x1p-24F;  // no denormal of f32
    std::memcpy(&bits, &size, sizeof bits);
    bits |= sign;
  }
  float widened;
  std::memcpy(&widened, &bits, sizeof widened);
  return widened;
#endif
}

}  // namespace troupe
