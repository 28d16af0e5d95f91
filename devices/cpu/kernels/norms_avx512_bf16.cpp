#include <immintrin.h>

#include "devices/cpu/kernels/norms.hpp"

namespace troupe::cpu {
namespace norms_avx512_bf16 {
namespace {

#include "devices/cpu/kernels/norm_lanes_512.inc"

struct Lanes : Lanes512 {
  using Lanes512::store;
  using Lanes512::store_pair;
  using Lanes512::store_part;
  static void store(std::uint16_t* to, Vector value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(value));
  }
  static void store_part(std::uint16_t* to, Vector value, std::size_t count) {
    _mm256_mask_storeu_epi16(to, first(count), (__m256i)_mm512_cvtneps_pbh(value));
  }
  /// The even and the odd elements of 32.
  static __m512i rounded_pair(Vector a, Vector b) {
    alignas(64) static constexpr std::uint16_t kTurns[] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    return _mm512_permutexvar_epi16(_mm512_load_si512(kTurns), both);
  }
  static void store_pair(std::uint16_t* to, Vector a, Vector b) { _mm512_storeu_si512(to, rounded_pair(a, b)); }
  static void stream_pair(std::uint16_t* to, Vector a, Vector b) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded_pair(a, b));
  }
};

#include "devices/cpu/kernels/norms.inc"

constexpr NormKernelSet kTable{{"own:norm_avx512", moments, normalize, gradient_sums, to_input},
                               {"own:norm_avx512_bf16", moments, normalize, gradient_sums, to_input},
                               {add, add_squares, multiply, scale, finish_gradients}};

}  // namespace
}  // namespace norms_avx512_bf16

const NormKernelSet kAvx512Bf16Norms = norms_avx512_bf16::kTable;

}  // namespace troupe::cpu
