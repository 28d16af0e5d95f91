#include <immintrin.h>

#include <array>
#include <utility>

#include "devices/cpu/kernels/dense.hpp"

namespace troupe::cpu {
namespace dense_avx512_bf16 {
namespace {

#include "devices/cpu/kernels/dense_lanes_512.inc"

/// Sums are f32; a lane adds the products of two neighbouring inputs.
struct Lanes : Lanes512 {
  static constexpr std::size_t kElements = 32;
  using Element = std::uint16_t;
  static Vector load(const Element* from) { return _mm512_loadu_ps(from); }
  static __mmask32 first(std::size_t count) { return (1U << count) - 1; }
  static Vector load_part(const Element* from, __mmask32 mask) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from));
  }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
  template <std::size_t kCount>
  static void store_rounded(Element* to, __m128 value) {
    const auto rounded = _mm_cvtneps_pbh(value);
    __builtin_memcpy(to, &rounded, kCount * sizeof(Element));
  }
};

#include "devices/cpu/kernels/dense.inc"

constexpr DenseKernels kTable{"own:dense_bf16", forward};

}  // namespace
}  // namespace dense_avx512_bf16

const DenseKernels kBf16DenseKernels = dense_avx512_bf16::kTable;

}  // namespace troupe::cpu
