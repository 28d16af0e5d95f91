#include <immintrin.h>

#include "devices/cpu/kernels/max_pool.hpp"

namespace troupe::cpu {
namespace max_pool_avx512 {
namespace {

struct Lanes {
  static constexpr std::size_t kLanes = 16;
  using Vector = __m512;
  using Element = float;

  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
  static __mmask16 first(std::size_t count) { return static_cast<__mmask16>((1U << count) - 1); }
  static Vector load_part(const float* from, std::size_t count) { return _mm512_maskz_loadu_ps(first(count), from); }
  static void store_part(float* to, Vector value, std::size_t count) { _mm512_mask_storeu_ps(to, first(count), value); }

  static Vector ordered(Vector value) { return value; }
  static __mmask16 greater(Vector a, Vector b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static Vector choose(__mmask16 mask, Vector then, Vector other) { return _mm512_mask_mov_ps(other, mask, then); }
  static unsigned bits(__mmask16 mask) { return mask; }
  static Vector where(unsigned bits, Vector value) { return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), value); }
  /// NaN stays: max() returns its second operand then.
  static Vector positive(Vector value) { return _mm512_max_ps(_mm512_setzero_ps(), value); }

  /// Of the elements of a window, in memory a byte each.
  using Choices = __m128i;
  static Choices choices(unsigned element) { return _mm_set1_epi8(static_cast<char>(element)); }
  static Choices load(const std::uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static void store(std::uint8_t* to, Choices value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }
  static Choices choose(__mmask16 mask, Choices then, Choices other) { return _mm_mask_mov_epi8(other, mask, then); }
  static __mmask16 equal(Choices a, Choices b) { return _mm_cmpeq_epi8_mask(a, b); }
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector add_where(__mmask16 mask, Vector sum, Vector value) {
    return _mm512_mask_add_ps(sum, mask, sum, value);
  }
};

#include "devices/cpu/kernels/max_pool.inc"
#include "devices/cpu/kernels/overlapping_max_pool.inc"

constexpr MaxPoolKernels<float> kTable{"own:max_pool_avx512", choice_words, forward, backward};
constexpr MaxPoolKernels<float> kOverlapping{"own:max_pool_avx512", overlapping::choice_words, overlapping::forward,
                                             overlapping::backward};

}  // namespace
}  // namespace max_pool_avx512

const MaxPoolKernels<float> kAvx512MaxPool = max_pool_avx512::kTable;
const MaxPoolKernels<float> kAvx512OverlappingMaxPool = max_pool_avx512::kOverlapping;

}  // namespace troupe::cpu
