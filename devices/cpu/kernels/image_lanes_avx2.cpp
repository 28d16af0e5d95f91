#include <immintrin.h>

#include "devices/cpu/kernels/image_lanes.hpp"

namespace troupe::cpu {
namespace {

struct Lanes {
  static constexpr std::size_t kLanes = 8, kElements = 1;
  static constexpr std::size_t kSums = 12, kFilters = 3, kColumns = 4;
  using Vector = __m256;
  using Element = float;

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector one() { return _mm256_set1_ps(1); }
  static Vector load(const void* from) { return _mm256_loadu_ps(static_cast<const float*>(from)); }
  static void store(void* to, Vector value) { _mm256_storeu_ps(static_cast<float*>(to), value); }
  static __m256i first(std::size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load_part(const void* from, std::size_t count) {
    return _mm256_maskload_ps(static_cast<const float*>(from), first(count));
  }
  static void store_part(void* to, Vector value, std::size_t count) {
    _mm256_maskstore_ps(static_cast<float*>(to), first(count), value);
  }
  static Vector broadcast(const std::uint32_t* from) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(from));
  }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  static Vector sum(float value) { return _mm256_set1_ps(value); }
  static void store_sum(float* to, Vector value, bool relu) {
    // NaN stays: max() returns its second operand then.
    _mm256_storeu_ps(to, relu ? _mm256_max_ps(_mm256_setzero_ps(), value) : value);
  }
  static float sum_of_lanes(Vector value) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static std::uint32_t word(const float* from, std::size_t) { return __builtin_bit_cast(std::uint32_t, *from); }
  static void round(const float* sums, std::size_t elements, std::uint32_t* to) {
    for (std::size_t e = 0; e < elements; ++e) store(to + e * kLanes, load(sums + e * kLanes));
  }
  static void pair_images(std::uint32_t*, Vector, Vector) {}

  static void transpose(Vector (&rows)[kLanes]) {
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      a[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
      a[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
      b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
      b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
      b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
      rows[4 + i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
  }
};

#include "devices/cpu/kernels/image_lanes.inc"

}  // namespace

const LaneKernels kAvx2LaneKernels{"own:lanes_avx2", kLanes,        kElements,        forward_words,
                                   to_input_words,   pack_forward,  pack_to_input,    forward,
                                   to_input,         input_words,   gradient_words,   arrange_input,
                                   arrange_gradient, filter_blocks, to_weights_words, to_weights};

}  // namespace troupe::cpu
