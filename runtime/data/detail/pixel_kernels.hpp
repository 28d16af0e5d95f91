#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::detail {

/// The weights of one resized row or column: for source pixels [first, first + taps).
struct Taps {
  std::uint32_t first = 0;
  const float* weights = nullptr;  // [number of taps of the axis]; 0 where an edge needs fewer
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
  /// to[j] = sum over k < count_rows of weights[k] * rows[k * stride + j]
  void (*blend_rows)(float* to, const std::uint8_t* rows, std::size_t stride, const float* weights,
                     std::size_t count_rows, std::size_t count);
  /// For pixels of four floats: to[x * channels + c] = sum over k < count_taps of
  /// taps[x].weights[k] * from[taps[x].first + k][c], rounded to the nearest byte; channels is 1, 3
  /// or 4.
  void (*blend_pixels)(std::uint8_t* to, const float* from, const Taps* taps, std::size_t count_taps,
                       std::size_t count_pixels, std::size_t channels);
  /// In place, for pixels of three bytes: a matrix [3, 4], whose last column is added; rounded, clipped to 0 to 255.
  void (*mix_colors)(std::uint8_t* pixels, const float* matrix, std::size_t count_pixels);
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
