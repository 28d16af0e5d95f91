#include <immintrin.h>

#include <array>
#include <utility>

#include "devices/cpu/kernels/dense.hpp"

namespace troupe::cpu {
namespace dense_avx512 {
namespace {

#include "devices/cpu/kernels/dense_lanes_512.inc"

struct Lanes : Lanes512 {
  static constexpr std::size_t kElements = 16;
  using Element = float;
  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static __mmask16 first(std::size_t count) { return static_cast<__mmask16>((1U << count) - 1); }
  static Vector load_part(const float* from, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  template <std::size_t kCount>
  static void store_rounded(std::uint16_t*, __m128) {}  // outputs of f32 operands are f32
};

#include "devices/cpu/kernels/dense.inc"

constexpr DenseKernels kTable{"own:dense_avx512", forward};

}  // namespace
}  // namespace dense_avx512

const DenseKernels kAvx512DenseKernels = dense_avx512::kTable;

}  // namespace troupe::cpu
