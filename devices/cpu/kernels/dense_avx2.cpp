#include <immintrin.h>

#include <array>
#include <utility>

#include "devices/cpu/kernels/dense.hpp"

namespace troupe::cpu {
namespace dense_avx2 {
namespace {

struct Lanes {
  static constexpr std::size_t kElements = 8, kRows = 3;
  using Vector = __m256;
  using Element = float;

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static __m256i first(std::size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector load_part(const float* from, __m256i mask) { return _mm256_maskload_ps(from, mask); }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  template <std::size_t kCount>
  static void store_rounded(std::uint16_t*, __m128) {}  // outputs of f32 operands are f32
  /// The sum of the lanes of each vector.
  template <std::size_t kCount>
  static __m128 sums_of_lanes(const Vector (&of)[kCount]) {
    const Vector a = of[0], b = kCount > 1 ? of[1] : zero(), c = kCount > 2 ? of[2] : zero(),
                 d = kCount > 3 ? of[3] : zero();
    const __m256d ab = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
    const __m256d cd = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)));
    const __m256 halves =
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)), _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
  }
};

#include "devices/cpu/kernels/dense.inc"

constexpr DenseKernels kTable{"own:dense_avx2", forward};

}  // namespace
}  // namespace dense_avx2

const DenseKernels kAvx2DenseKernels = dense_avx2::kTable;

}  // namespace troupe::cpu
