// GCC 12 says so of intrinsics whose result does not depend on it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe::detail {
namespace {
#include "runtime/data/detail/pixel_loops.inc"

inline __m512i words_at(const std::uint8_t* bytes, __mmask32 mask) {
  return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, bytes));
}

/// Two rows at a time: their samples stand beside each other, so that one instruction multiplies and adds both.
void blend_down(std::int16_t* to, const std::uint8_t* rows, std::size_t stride, const std::int16_t* weights,
                std::size_t count_rows, std::size_t count) {
  for (std::size_t j = 0; j < count; j += 32) {
    const __mmask32 mask = count - j >= 32 ? ~__mmask32{0} : (__mmask32{1} << (count - j)) - 1;
    __m512i low = _mm512_set1_epi32(1 << 6), high = low;
    for (std::size_t k = 0; k < count_rows; k += 2) {
      const bool two = k + 1 < count_rows;
      const int pair = (two ? weights[k + 1] * (1 << 16) : 0) + weights[k];
      const __m512i weight = _mm512_set1_epi32(pair);
      const __m512i row = words_at(rows + k * stride + j, mask);
      const __m512i next = two ? words_at(rows + (k + 1) * stride + j, mask) : _mm512_setzero_si512();
      low = _mm512_add_epi32(low, _mm512_madd_epi16(_mm512_unpacklo_epi16(row, next), weight));
      high = _mm512_add_epi32(high, _mm512_madd_epi16(_mm512_unpackhi_epi16(row, next), weight));
    }
    const __m512i sums = _mm512_packs_epi32(_mm512_srai_epi32(low, 7), _mm512_srai_epi32(high, 7));
    _mm512_mask_storeu_epi16(to + j, mask, sums);
  }
}

/// 16 values at a time, whose samples are chosen from two registers.
void blend_across(std::int16_t* to, const std::int16_t* from, const AcrossWeights& across) {
  if (across.pairs == 0) return blend_across_from(0, to, from, across);
  const std::uint16_t* picks = across.picks;
  const std::int16_t* weights = across.pick_weights;
  for (std::size_t x = 0, group = 0; x < across.count; x += 16, ++group) {
    const std::int16_t* const samples = from + across.group_first[group];
    const __m512i low = _mm512_loadu_si512(samples), high = _mm512_loadu_si512(samples + 32);
    __m512i sums = _mm512_set1_epi32(1 << 13);
    for (std::size_t pair = 0; pair < across.pairs; ++pair, picks += 32, weights += 32) {
      const __m512i taps = _mm512_permutex2var_epi16(low, _mm512_loadu_si512(picks), high);
      sums = _mm512_add_epi32(sums, _mm512_madd_epi16(taps, _mm512_loadu_si512(weights)));
    }
    const __m256i words = _mm512_cvtepi32_epi16(_mm512_srai_epi32(sums, 14));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + x), words);
  }
}

}  // namespace

const PixelKernels kAvx512PixelKernels{"AVX-512",    to_f32,     to_bf16,    blend_down, blend_across,
                                       merge_colors, merge_luma, mix_colors, true};

}  // namespace troupe::detail
