#include <immintrin.h>

#include "devices/cpu/kernels/image_lanes.hpp"

namespace troupe::cpu {
namespace {

#include "devices/cpu/kernels/lanes_512.inc"

/// Sums are f32.
struct Lanes : Lanes512 {
  static constexpr std::size_t kElements = 2;
  using Element = std::uint16_t;
  static std::uint32_t word(const std::uint16_t* from, std::size_t distance) {
    return from[0] | static_cast<std::uint32_t>(from[distance]) << 16;
  }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
  static Vector one() { return _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)); }
  /// [elements, lanes] f32 to words of two elements.
  static void round(const float* sums, std::size_t elements, std::uint32_t* to) {
    for (std::size_t e = 0; e < elements; e += 2, to += kLanes) {
      const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(load(sums + e * kLanes)));
      const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(load(sums + (e + 1) * kLanes)));
      _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
  /// From words of two channels to one word for each channel, of an image in `low` and one in `high`.
  static void pair_images(std::uint32_t* to, Vector low, Vector high) {
    const __m512i a = _mm512_castps_si512(low), b = _mm512_castps_si512(high);
    _mm512_storeu_si512(to, _mm512_mask_mov_epi16(_mm512_slli_epi32(b, 16), 0x55555555U, a));
    _mm512_storeu_si512(to + kLanes, _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), 0xaaaaaaaaU, b));
  }
};

#include "devices/cpu/kernels/image_lanes.inc"

}  // namespace

const LaneKernels kBf16LaneKernels{"own:lanes_bf16", kLanes,        kElements,        forward_words,
                                   to_input_words,   pack_forward,  pack_to_input,    forward,
                                   to_input,         input_words,   gradient_words,   arrange_input,
                                   arrange_gradient, filter_blocks, to_weights_words, to_weights};

}  // namespace troupe::cpu
