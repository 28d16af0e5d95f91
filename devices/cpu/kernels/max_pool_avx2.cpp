#include <immintrin.h>

#include "devices/cpu/kernels/max_pool.hpp"

namespace troupe::cpu {
namespace max_pool_avx2 {
namespace {

struct Lanes {
  static constexpr std::size_t kLanes = 8;
  using Vector = __m256;
  using Element = float;

  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
  static __m256i first(std::size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load_part(const float* from, std::size_t count) { return _mm256_maskload_ps(from, first(count)); }
  static void store_part(float* to, Vector value, std::size_t count) { _mm256_maskstore_ps(to, first(count), value); }

  static Vector ordered(Vector value) { return value; }
  static Vector greater(Vector a, Vector b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static Vector choose(Vector mask, Vector then, Vector other) { return _mm256_blendv_ps(other, then, mask); }
  static unsigned bits(Vector mask) { return static_cast<unsigned>(_mm256_movemask_ps(mask)); }
  static Vector where(unsigned bits, Vector value) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit);
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit)), value);
  }
  /// NaN stays: max() returns its second operand then.
  static Vector positive(Vector value) { return _mm256_max_ps(_mm256_setzero_ps(), value); }

  /// Of the elements of a window, in memory a byte each.
  using Choices = __m256i;
  static Choices choices(unsigned element) { return _mm256_set1_epi32(static_cast<int>(element)); }
  static Choices load(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(std::uint8_t* to, Choices value) {
    const __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(pairs, pairs));
  }
  static Choices choose(Vector mask, Choices then, Choices other) {
    return _mm256_blendv_epi8(other, then, _mm256_castps_si256(mask));
  }
  static Vector equal(Choices a, Choices b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)); }
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector add_where(Vector mask, Vector sum, Vector value) {
    return _mm256_add_ps(sum, _mm256_and_ps(mask, value));
  }
};

#include "devices/cpu/kernels/max_pool.inc"
#include "devices/cpu/kernels/overlapping_max_pool.inc"

constexpr MaxPoolKernels<float> kTable{"own:max_pool_avx2", choice_words, forward, backward};
constexpr MaxPoolKernels<float> kOverlapping{"own:max_pool_avx2", overlapping::choice_words, overlapping::forward,
                                             overlapping::backward};

}  // namespace
}  // namespace max_pool_avx2

const MaxPoolKernels<float> kAvx2MaxPool = max_pool_avx2::kTable;
const MaxPoolKernels<float> kAvx2OverlappingMaxPool = max_pool_avx2::kOverlapping;

}  // namespace troupe::cpu
