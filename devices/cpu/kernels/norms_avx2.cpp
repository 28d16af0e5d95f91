#include <immintrin.h>

#include "devices/cpu/kernels/norms.hpp"

namespace troupe::cpu {
namespace norms_avx2 {
namespace {

struct Lanes {
  static constexpr std::size_t kLanes = 8, kBlocks = 2;
  using Vector = __m256;

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector all(float value) { return _mm256_set1_ps(value); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  static Vector subtract_product(Vector from, Vector a, Vector b) { return _mm256_fnmadd_ps(a, b, from); }
  /// 0 where `value` is below 0; NaN stays: max() returns its second operand then.
  static Vector positive(Vector value) { return _mm256_max_ps(_mm256_setzero_ps(), value); }
  static Vector where_positive(Vector value, Vector then) {
    return _mm256_and_ps(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_GT_OQ), then);
  }

  static __m256i first(std::size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static Vector load_part(const float* from, std::size_t count) { return _mm256_maskload_ps(from, first(count)); }
  static void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
  /// Past the caches, at a multiple of a vector's size; end_streams() comes before another thread reads it.
  static void stream(float* to, Vector value) { _mm256_stream_ps(to, value); }
  static void end_streams() { _mm_sfence(); }
  static void store_part(float* to, Vector value, std::size_t count) { _mm256_maskstore_ps(to, first(count), value); }

  static Vector load(const std::uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static Vector load_part(const std::uint16_t* from, std::size_t count) {
    std::uint16_t bits[kLanes] = {};
    __builtin_memcpy(bits, from, count * sizeof *from);
    return load(bits);
  }
  /// The even or odd elements of 16.
  static Vector load_half(const std::uint16_t* from, bool odd) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if (!odd) return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  static Vector in_order(Vector value) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(value), 0xd8));
  }
  static void split(const float* from, Vector& a, Vector& b) {
    const Vector low = load(from), high = load(from + kLanes);
    a = in_order(_mm256_shuffle_ps(low, high, 0x88));
    b = in_order(_mm256_shuffle_ps(low, high, 0xdd));
  }
  /// The same of 8 columns, which both halves get.
  static void split_twice(const float* from, Vector& a, Vector& b) {
    const Vector both = load(from);
    a = in_order(_mm256_shuffle_ps(both, both, 0x88));
    b = in_order(_mm256_shuffle_ps(both, both, 0xdd));
  }
  static void join_half(float* to, Vector a, Vector b) {
    store(to, _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20));
  }
  static void join(float* to, Vector a, Vector b) {
    join_half(to, a, b);
    store(to + kLanes, _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31));
  }
  static Vector add_halves(Vector value) { return add(value, _mm256_permute2f128_ps(value, value, 1)); }
  static void store_pair(float* to, Vector a, Vector b) { join(to, a, b); }
  /// As troupe::to_bf16, in the upper halves.
  static __m256i rounded_above(Vector value) {
    const __m256i bits = _mm256_castps_si256(value), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, nan, is_nan);
  }
  static __m128i round(Vector value) {
    const __m256i words = _mm256_srli_epi32(rounded_above(value), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  static void store(std::uint16_t* to, Vector value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), round(value)); }
  /// The even and the odd elements of 16.
  static __m256i rounded_pair(Vector a, Vector b) {
    const __m256i low = _mm256_srli_epi32(rounded_above(a), 16);
    return _mm256_blend_epi16(low, rounded_above(b), 0xaa);
  }
  static void store_pair(std::uint16_t* to, Vector a, Vector b) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded_pair(a, b));
  }
  static void stream_pair(std::uint16_t* to, Vector a, Vector b) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), rounded_pair(a, b));
  }
  static void store_part(std::uint16_t* to, Vector value, std::size_t count) {
    std::uint16_t bits[kLanes];
    store(bits, value);
    __builtin_memcpy(to, bits, count * sizeof *to);
  }
};

#include "devices/cpu/kernels/norms.inc"

constexpr NormKernelSet kTable{{"own:norm_avx2", moments, normalize, gradient_sums, to_input},
                               {"own:norm_avx2", moments, normalize, gradient_sums, to_input},
                               {add, add_squares, multiply, scale, finish_gradients}};

}  // namespace
}  // namespace norms_avx2

const NormKernelSet kAvx2Norms = norms_avx2::kTable;

}  // namespace troupe::cpu
