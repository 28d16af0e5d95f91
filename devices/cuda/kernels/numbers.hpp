#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

/// How many neighbouring elements a thread handles at once, where tensors allow it: 16 bytes of f32.
inline constexpr unsigned kPack = 4;
/// The same of 16 bits each, where all tensors have such.
inline constexpr unsigned kShortPack = 8;
template <unsigned kCount>
using Width = std::integral_constant<unsigned, kCount>;  // 1 or one of them, as an argument of what is written for all

/// Neighbouring elements.
template <unsigned kCount>
struct Numbers {
  float of[kCount];
};
/// As they are stored, in as few words as they fill: of f32 one each.
template <unsigned kCount>
struct StoredNumbers {
  std::uint32_t words[kCount == kShortPack ? kCount / 2 : kCount];
};
template <unsigned kCount>
struct alignas(4 * kCount) Words {
  std::uint32_t of[kCount];
};
/// In one access, at a multiple of the size. Not by pointers to other types on a host, whose compiler may then reorder.
template <class Word>
TROUPE_KERNEL_BODY Word word_at(const void* at, std::uint64_t index) {
#if defined(__CUDACC__)
  return static_cast<const Word*>(at)[index];
#else
  Word word;
  memcpy(&word, static_cast<const std::byte*>(at) + index * sizeof word, sizeof word);
  return word;
#endif
}
template <class Word>
TROUPE_KERNEL_BODY void put_word(void* at, std::uint64_t index, const Word& word) {
#if defined(__CUDACC__)
  static_cast<Word*>(at)[index] = word;
#else
  memcpy(static_cast<std::byte*>(at) + index * sizeof word, &word, sizeof word);
#endif
}

/// Whether a tensor's packs begin where one access brings them.
TROUPE_KERNEL_BODY bool is_in_packs(const void* at, Stored type) {
  return reinterpret_cast<std::uintptr_t>(at) % (kPack * bytes_of(type)) == 0;
}
/// Whether all rows of `width` elements begin so.
TROUPE_KERNEL_BODY bool has_packs(const void* at, Stored type, std::uint64_t width) {
  return width % kPack == 0 && is_in_packs(at, type);
}

/// Brings elements from `index` on, a multiple of kCount. What makes numbers of them comes apart (widened), so that a
/// thread can have several on their way.
template <unsigned kCount>
TROUPE_KERNEL_BODY StoredNumbers<kCount> bring(Width<kCount>, const void* from, Stored type, std::uint64_t index) {
  StoredNumbers<kCount> found{};
  if constexpr (kCount == 1) {
    found.words[0] = type == Stored::f32 ? word_at<std::uint32_t>(from, index) : word_at<std::uint16_t>(from, index);
  } else if (kCount == kShortPack || type == Stored::f32) {
    const auto all = word_at<Words<4>>(from, index / kCount);
    for (unsigned k = 0; k < 4; ++k) found.words[k] = all.of[k];
  } else {
    const auto all = word_at<Words<2>>(from, index / kCount);
    for (unsigned k = 0; k < 2; ++k) found.words[k] = all.of[k];
  }
  return found;
}
template <unsigned kCount>
TROUPE_KERNEL_BODY Numbers<kCount> widened(const StoredNumbers<kCount>& stored, Stored type) {
  Numbers<kCount> found{};
  if (type == Stored::f32) {
    for (unsigned k = 0; k < kCount; ++k) found.of[k] = float_of(stored.words[k]);
    return found;
  }
  for (unsigned k = 0; k < kCount; ++k) {
    const auto bits = static_cast<std::uint16_t>(stored.words[k / 2] >> 16 * (k % 2));
    found.of[k] = type == Stored::f16 ? from_f16(bits) : widened(bits);
  }
  return found;
}
template <unsigned kCount>
TROUPE_KERNEL_BODY Numbers<kCount> load(Width<kCount> width, const void* from, Stored type, std::uint64_t index) {
  return widened(bring(width, from, type, index), type);
}
template <unsigned kCount>
TROUPE_KERNEL_BODY void store(Width<kCount>, void* to, Stored type, std::uint64_t index, const Numbers<kCount>& all) {
  if constexpr (kCount == 1) {
    store(to, type, index, all.of[0]);
  } else if (kCount != kShortPack && type == Stored::f32) {
    Words<4> words{};
    for (unsigned k = 0; k < 4; ++k) words.of[k] = bits_of(all.of[k]);
    put_word(to, index / kCount, words);
  } else {
    Words<kCount / 2> words{};
    for (unsigned k = 0; k < kCount; ++k) words.of[k / 2] |= std::uint32_t{rounded(all.of[k], type)} << 16 * (k % 2);
    put_word(to, index / kCount, words);
  }
}

/// Calls act(Width<kPack>{}, i) for each pack of `count` elements, the first of which is i, and act(Width<1>{}, i) for
/// each element that is left, in one of all blocks. Not `in_packs`: there are no packs.
template <class Act>
TROUPE_KERNEL_BODY void for_each_pack(const Block& block, std::uint64_t count, bool in_packs, Act&& act) {
  const std::uint64_t packs = in_packs ? count / kPack : 0;
  block.for_each(packs, [&](std::uint64_t pack) { act(Width<kPack>{}, kPack * pack); });
  block.for_each(count - kPack * packs, [&](std::uint64_t i) { act(Width<1>{}, kPack * packs + i); });
}

/// Where element `index` of rows of `width` stands. Divides numbers of 32 bits, if they are, which takes less time.
struct RowPlace {
  std::uint64_t row, column;
};
TROUPE_KERNEL_BODY RowPlace place_in_rows(std::uint64_t index, std::uint64_t width) {
  if ((index | width) >> 32 != 0) return {index / width, index % width};
  const auto low = static_cast<std::uint32_t>(index), by = static_cast<std::uint32_t>(width), row = low / by;
  return {row, low - row * by};
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
