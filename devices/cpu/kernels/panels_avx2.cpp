#include <immintrin.h>

#include "devices/cpu/kernels/panels.hpp"

namespace troupe::cpu {
namespace panels_avx2 {
namespace {

#include "devices/cpu/kernels/lanes_256.inc"

struct Lanes : Lanes256 {
  static constexpr std::size_t kVectors = 2;
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  /// to[i] = column i of 8 rows of words.
  static void load_columns(const std::uint32_t* from, std::size_t row_words, Vector (&to)[kLanes]) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kLanes; ++i) to[i] = load(from + i * row_words);
    transpose(to);
  }
  static Vector larger(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector words_of_terms(const float* from, std::size_t, std::size_t count) { return load_part(from, count); }
  static Vector words_of_last_term(const float* from, std::size_t count) { return load_part(from, count); }
  static Vector widened_part(const float* from, std::size_t count) { return load_part(from, count); }
  static void store_rounded(std::uint16_t*, Vector, std::size_t) {}  // results of f32 operands are f32
};

#include "devices/cpu/kernels/panels.inc"

constexpr PanelKernels kTable{"own:panels_avx2", kLanes, kVectors, kElements, multiply, finish, nullptr, add_rows};

}  // namespace
}  // namespace panels_avx2

const PanelKernels kAvx2PanelKernels = panels_avx2::kTable;

}  // namespace troupe::cpu
