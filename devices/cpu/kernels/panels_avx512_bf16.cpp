#include <immintrin.h>

#include "devices/cpu/kernels/panels.hpp"

namespace troupe::cpu {
namespace panels_avx512_bf16 {
namespace {

#include "devices/cpu/kernels/panel_lanes_512.inc"

/// Sums are f32.
struct Lanes : PanelLanes512 {
  static constexpr std::size_t kElements = 2;
  using Element = std::uint16_t;
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
  static __m512i part(const std::uint16_t* from, std::size_t count) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(count), from));
  }
  /// An element of each of two rows.
  static Vector words_of_terms(const std::uint16_t* from, std::size_t to_next, std::size_t count) {
    return _mm512_castsi512_ps(_mm512_or_si512(part(from, count), _mm512_slli_epi32(part(from + to_next, count), 16)));
  }
  static Vector words_of_last_term(const std::uint16_t* from, std::size_t count) {
    return _mm512_castsi512_ps(part(from, count));
  }
  static Vector widened_part(const std::uint16_t* from, std::size_t count) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(part(from, count), 16));
  }
  static void store_rounded(std::uint16_t* to, Vector value, std::size_t count) {
    _mm256_mask_storeu_epi16(to, first(count), (__m256i)_mm512_cvtneps_pbh(value));
  }
};

#include "devices/cpu/kernels/panels.inc"

void pair_rows(const std::uint16_t* from, std::size_t rows, std::size_t columns, std::uint32_t* to) {
  for (std::size_t r = 0; r < rows; r += 2, from += 2 * columns, to += columns) {
    for (std::size_t c = 0; c < columns; c += kLanes) {
      const std::size_t count = smaller(kLanes, columns - c);
      Lanes::store_part(
          to + c,
          r + 1 < rows ? Lanes::words_of_terms(from + c, columns, count) : Lanes::words_of_last_term(from + c, count),
          count);
    }
  }
}

constexpr PanelKernels kTable{"own:panels_bf16", kLanes, kVectors, kElements, multiply, finish, pair_rows, add_rows};

}  // namespace
}  // namespace panels_avx512_bf16

const PanelKernels kBf16PanelKernels = panels_avx512_bf16::kTable;

}  // namespace troupe::cpu
