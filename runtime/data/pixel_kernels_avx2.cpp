#include <immintrin.h>

#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe::detail {
namespace {
#include "runtime/data/detail/pixel_loops.inc"

inline __m256i words_at(const std::uint8_t* bytes) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

/// Two rows at a time: their samples stand beside each other, so that one instruction multiplies and adds both.
void blend_down(std::int16_t* to, const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights,
                std::size_t count_rows, std::size_t count) {
  std::size_t j = 0;
  for (; j + 16 <= count; j += 16) {
    __m256i low = _mm256_set1_epi32(1 << 6), high = low;
    for (std::size_t k = 0; k < count_rows; k += 2) {
      const bool two = k + 1 < count_rows;
      const int pair = (two ? weights[k + 1] * (1 << 16) : 0) + weights[k];
      const __m256i weight = _mm256_set1_epi32(pair);
      const __m256i row = words_at(rows + k * stride + j);
      const __m256i next = two ? words_at(rows + (k + 1) * stride + j) : _mm256_setzero_si256();
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(row, next), weight));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(row, next), weight));
    }
    const __m256i sums = _mm256_packs_epi32(_mm256_srai_epi32(low, 7), _mm256_srai_epi32(high, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), sums);
  }
  blend_down_from(j, to, rows, stride, weights, count_rows, count);
}

inline __m128i products(const std::int16_t* from, const AcrossWeights& across, std::size_t x) {
  const std::int16_t* const samples = from + across.first[x];
  const std::int16_t* const weights = across.weights + x * across.distance;
  __m128i sums = _mm_setzero_si128();
  for (std::size_t k = 0; k < across.taps; k += 8) {
    const __m128i taps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(samples + k));
    const __m128i by = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + k));
    sums = _mm_add_epi32(sums, _mm_madd_epi16(taps, by));
  }
  return sums;
}

void blend_across(std::int16_t* to, const std::int16_t* from, const AcrossWeights& across) {
  std::size_t x = 0;
  for (; x + 4 <= across.count; x += 4) {
    const __m128i first = _mm_hadd_epi32(products(from, across, x), products(from, across, x + 1));
    const __m128i second = _mm_hadd_epi32(products(from, across, x + 2), products(from, across, x + 3));
    const __m128i sums = _mm_add_epi32(_mm_hadd_epi32(first, second), _mm_set1_epi32(1 << 13));
    const __m128i words = _mm_packs_epi32(_mm_srai_epi32(sums, 14), _mm_setzero_si128());
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + x), words);
  }
  blend_across_from(x, to, from, across);
}

}  // namespace

const PixelKernels kAvx2PixelKernels{"AVX2",       to_f32,     to_bf16,    blend_down, blend_across,
                                     merge_colors, merge_luma, mix_colors, false};

}  // namespace troupe::detail
