#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::detail {

/// Weights of resized pixels count in units of 2^-14, blended values in units of 2^-7: both fit 16 bits.
inline constexpr int kPixelWeightOne = 1 << 14;

/// How a row of blended values is blended across to `count` values, each from samples beside each other.
struct AcrossWeights {
  std::size_t count = 0;
  std::size_t taps = 0;                   // samples of each
  std::size_t distance = 0;               // from weights to weights; a multiple of 8, the rest is 0
  const std::uint32_t* first = nullptr;   // [count], the first sample
  const std::int16_t* weights = nullptr;  // [count, distance]
  // The same for kernels that permute, which take groups of 16 values: of 64 samples from group_first on, lane i takes
  // those at picks[2 i] and picks[2 i + 1]. No pairs: some group needs more samples.
  std::size_t pairs = 0;
  const std::uint32_t* group_first = nullptr;  // [groups]
  const std::uint16_t* picks = nullptr;        // [groups, pairs, 32]
  const std::int16_t* pick_weights = nullptr;  // [groups, pairs, 32]
};

/// The loops over pixels, compiled from one source for each instruction set. All give the same bits. Arrays need no
/// alignment.
struct PixelKernels {
  const char* name;
  /// to[i] = from[i] / 255 * scale[i] + offset[i]
  void (*to_f32)(float* to, const std::uint8_t* from, const float* scale, const float* offset, std::size_t count);
  /// The same, rounded like troupe::to_bf16.
  void (*to_bf16)(std::uint16_t* to, const std::uint8_t* from, const float* scale, const float* offset,
                  std::size_t count);
  /// to[j] = sum over k < count_rows of weights[k] * rows[k * stride + j], in units of 2^-7
  void (*blend_down)(std::int16_t* to, const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights,
                     std::size_t count_rows, std::size_t count);
  /// to[x] = sum over k < taps of weights[x, k] * from[first[x] + k]. Up to 128 elements behind the last one may be
  /// read of `from` and written of `to`.
  void (*blend_across)(std::int16_t* to, const std::int16_t* from, const AcrossWeights& across);
  /// Rounds blended red, green and blue to bytes, pixel by pixel.
  void (*merge_colors)(std::uint8_t* to, const std::int16_t* red, const std::int16_t* green, const std::int16_t* blue,
                       std::size_t count);
  /// The same from Y, Cb and Cr. Source: JFIF 1.02 (Ecma TR/98), section 7.
  void (*merge_luma)(std::uint8_t* to, const std::int16_t* y, const std::int16_t* cb, const std::int16_t* cr,
                     std::size_t count);
  /// In place, of pixels of three bytes: a matrix [3, 4], whose last column is added, rounded and cut at 0 and 255.
  void (*mix_colors)(std::uint8_t* pixels, const float* matrix, std::size_t count_pixels);
  bool permutes;  // blend_across reads groups
};

extern const PixelKernels kBaselinePixelKernels;
#if defined(TROUPE_PIXEL_KERNELS_X86)
extern const PixelKernels kAvx2PixelKernels;
extern const PixelKernels kAvx512PixelKernels;
#endif

/// All that this machine can execute and TROUPE_MAX_CPU_ISA allows, narrowest first.
std::vector<const PixelKernels*> usable_pixel_kernels();
/// The widest of them.
const PixelKernels& best_pixel_kernels();

}  // namespace troupe::detail
