#include <immintrin.h>

#include "devices/cpu/kernels/norms.hpp"

namespace troupe::cpu {
namespace norms_avx512 {
namespace {

#include "devices/cpu/kernels/norm_lanes_512.inc"

struct Lanes : Lanes512 {
  using Lanes512::store;
  using Lanes512::store_pair;
  using Lanes512::store_part;
  /// As troupe::to_bf16, in the upper halves.
  static __m512i rounded_above(Vector value) {
    const __m512i bits = _mm512_castps_si512(value), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    const __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(rounded, is_nan, nan);
  }
  static __m256i round(Vector value) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_above(value), 16)); }
  static void store(std::uint16_t* to, Vector value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), round(value));
  }
  static void store_part(std::uint16_t* to, Vector value, std::size_t count) {
    _mm256_mask_storeu_epi16(to, first(count), round(value));
  }
  /// The even and the odd elements of 32.
  static __m512i rounded_pair(Vector a, Vector b) {
    const __m512i low = _mm512_srli_epi32(rounded_above(a), 16);
    return _mm512_mask_mov_epi16(low, 0xaaaaaaaaU, rounded_above(b));
  }
  static void store_pair(std::uint16_t* to, Vector a, Vector b) { _mm512_storeu_si512(to, rounded_pair(a, b)); }
  static void stream_pair(std::uint16_t* to, Vector a, Vector b) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded_pair(a, b));
  }
};

#include "devices/cpu/kernels/norms.inc"

constexpr NormKernelSet kTable{{"own:norm_avx512", moments, normalize, gradient_sums, to_input},
                               {"own:norm_avx512", moments, normalize, gradient_sums, to_input},
                               {add, add_squares, multiply, scale, finish_gradients}};

}  // namespace
}  // namespace norms_avx512

const NormKernelSet kAvx512Norms = norms_avx512::kTable;

}  // namespace troupe::cpu
