#include "devices/cpu/kernels/one_channel_forward.hpp"

#include <immintrin.h>

namespace troupe::cpu {
namespace one_channel_forward_avx512 {
namespace {

/// Neighbouring pixels of a row, whose sums stay in registers: with 15 to 18 vectors of sums, no sum waits for the one
/// before, and neither loads nor products alone determine the time.
constexpr std::size_t kPixels = OneChannelForward::kLeastWidth, kHead = OneChannelForward::kHead;

/// A row of the packed weights of an element of the kernel, or of the biases: 16 filters, then each four filters four
/// times.
void pack_row(const OneChannelConvolution& of, const float* from, std::size_t step, float* packed) {
  for (std::size_t f = 0; f < kHead; ++f) packed[f] = from[f * step];
  for (std::size_t i = 0; i < OneChannelForward::fours(of) * kHead; ++i) {
    const std::size_t filter = kHead + i / kHead * 4 + i % 4;
    packed[kHead + i] = filter < of.filters ? from[filter * step] : 0.0F;
  }
}

void pack(const OneChannelConvolution& of, const float* weights, const float* bias, float* packed) {
  const std::size_t taps = of.kernel_height * of.kernel_width, row = kHead * (1 + OneChannelForward::fours(of));
  if (bias != nullptr)
    pack_row(of, bias, 1, packed);
  else
    __builtin_memset(packed, 0, row * sizeof(float));
  for (std::size_t t = 0; t < taps; ++t) pack_row(of, weights + t, taps, packed + (1 + t) * row);
}

/// Of the four filters that follow the first 16: `count` of them, of four pixels.
inline void store_fours(float* to, std::size_t filters, __m512 sums, std::size_t count) {
  const auto mask = static_cast<__mmask8>((1U << count) - 1);
  _mm_mask_storeu_ps(to, mask, _mm512_castps512_ps128(sums));
  _mm_mask_storeu_ps(to + filters, mask, _mm512_extractf32x4_ps(sums, 1));
  _mm_mask_storeu_ps(to + 2 * filters, mask, _mm512_extractf32x4_ps(sums, 2));
  _mm_mask_storeu_ps(to + 3 * filters, mask, _mm512_extractf32x4_ps(sums, 3));
}

/// `kWidth`: of the kernel; the elements of a row then stay in registers. 0: any.
template <std::size_t kFours, std::size_t kWidth>
void convolve_pixels(const OneChannelConvolution& of, const float* image, const float* packed, float* to) {
  constexpr std::size_t kGroups = kPixels / 4, kRow = kHead * (1 + kFours);
  const __m512i each = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  __m512 head[kPixels], tail[kFours * kGroups];
  for (std::size_t p = 0; p < kPixels; ++p) head[p] = _mm512_loadu_ps(packed);
  for (std::size_t i = 0; i < kFours * kGroups; ++i) tail[i] = _mm512_loadu_ps(packed + kHead * (1 + i / kGroups));
  const std::size_t width = kWidth > 0 ? kWidth : of.kernel_width;
  for (std::size_t y = 0; y < of.kernel_height; ++y, image += of.width) {
#pragma GCC unroll 8
    for (std::size_t x = 0; x < width; ++x) {
      packed += kRow;
      const __m512 weights = _mm512_loadu_ps(packed);
#pragma GCC unroll 16
      for (std::size_t p = 0; p < kPixels; ++p)
        head[p] = _mm512_fmadd_ps(_mm512_set1_ps(image[x + p]), weights, head[p]);
#pragma GCC unroll 4
      for (std::size_t g = 0; g < kGroups; ++g) {
        const __m512 four = _mm512_broadcast_f32x4(_mm_loadu_ps(image + x + 4 * g));
        const __m512 pixels = _mm512_permutevar_ps(four, each);
#pragma GCC unroll 2
        for (std::size_t f = 0; f < kFours; ++f) {
          __m512& sum = tail[f * kGroups + g];
          sum = _mm512_fmadd_ps(pixels, _mm512_loadu_ps(packed + kHead * (1 + f)), sum);
        }
      }
    }
  }
  const __m512 least = _mm512_set1_ps(of.relu ? 0.0F : -__builtin_inff());
  for (std::size_t p = 0; p < kPixels; ++p) _mm512_storeu_ps(to + p * of.filters, _mm512_max_ps(least, head[p]));
  for (std::size_t i = 0; i < kFours * kGroups; ++i) {
    const std::size_t first = kHead + i / kGroups * 4, left = of.filters - first;
    store_fours(to + i % kGroups * 4 * of.filters + first, of.filters, _mm512_max_ps(least, tail[i]),
                left < 4 ? left : 4);
  }
}

template <std::size_t kFours, std::size_t kWidth>
void convolve_image(const OneChannelConvolution& of, const float* image, const float* packed, float* to) {
  const std::size_t width = of.output_width();
  for (std::size_t y = 0; y < of.output_height(); ++y, image += of.width, to += width * of.filters) {
    for (std::size_t x = 0; x < width; x += kPixels) {
      const std::size_t at = x + kPixels > width ? width - kPixels : x;  // the last ones may be computed twice
      convolve_pixels<kFours, kWidth>(of, image + at, packed, to + at * of.filters);
    }
  }
}

template <std::size_t kFours>
void convolve_fours(const OneChannelConvolution& of, const float* image, const float* packed, float* to) {
  if (of.kernel_width == 5) return convolve_image<kFours, 5>(of, image, packed, to);
  convolve_image<kFours, 0>(of, image, packed, to);
}

void convolve(const OneChannelConvolution& of, const float* image, const float* packed, float* to) {
  if (OneChannelForward::fours(of) == 1) return convolve_fours<1>(of, image, packed, to);
  convolve_fours<2>(of, image, packed, to);
}

}  // namespace
}  // namespace one_channel_forward_avx512

const OneChannelForward kAvx512OneChannelForward{"own:one_channel_avx512", one_channel_forward_avx512::pack,
                                                 one_channel_forward_avx512::convolve};

}  // namespace troupe::cpu
