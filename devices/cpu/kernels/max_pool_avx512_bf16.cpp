#include <immintrin.h>

#include "devices/cpu/kernels/max_pool.hpp"

namespace troupe::cpu {
namespace max_pool_avx512_bf16 {
namespace {

/// Elements are compared as integers, which needs no instructions for bf16. A processor that divides 512 bits into two
/// halves loses nothing by vectors of 256.
struct Lanes {
  static constexpr std::size_t kLanes = 16;
  using Vector = __m256i;
  using Element = std::uint16_t;

  static Vector load(const Element* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static void store(Element* to, Vector value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value); }
  static __mmask16 first(std::size_t count) { return static_cast<__mmask16>((1U << count) - 1); }
  static Vector load_part(const Element* from, std::size_t count) {
    return _mm256_maskz_loadu_epi16(first(count), from);
  }
  static void store_part(Element* to, Vector value, std::size_t count) {
    _mm256_mask_storeu_epi16(to, first(count), value);
  }

  /// Integers in the order of the bf16 numbers, and back.
  static Vector ordered(Vector value) {
    return _mm256_xor_si256(value, _mm256_srli_epi16(_mm256_srai_epi16(value, 15), 1));
  }
  static __mmask16 greater(Vector a, Vector b) { return _mm256_cmpgt_epi16_mask(a, b); }
  static Vector choose(__mmask16, Vector then, Vector other) { return _mm256_max_epi16(then, other); }
  static unsigned bits(__mmask16 mask) { return mask; }
  static Vector where(unsigned bits, Vector value) {
    return _mm256_maskz_mov_epi16(static_cast<__mmask16>(bits), value);
  }
  /// 0 where the sign is set and the rest at most that of infinity: NaN stays.
  static Vector positive(Vector value) {
    const Vector size = _mm256_xor_si256(value, _mm256_set1_epi16(static_cast<short>(0x8000)));
    const __mmask16 stays = _mm256_cmpgt_epu16_mask(size, _mm256_set1_epi16(0x7f80));
    return _mm256_maskz_mov_epi16(stays, value);
  }
};

#include "devices/cpu/kernels/max_pool.inc"

constexpr MaxPoolKernels<std::uint16_t> kTable{"own:max_pool_avx512", choice_words, forward, backward};

}  // namespace
}  // namespace max_pool_avx512_bf16

const MaxPoolKernels<std::uint16_t> kAvx512Bf16MaxPool = max_pool_avx512_bf16::kTable;

}  // namespace troupe::cpu
