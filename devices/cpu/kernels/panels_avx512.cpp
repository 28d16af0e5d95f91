#include <immintrin.h>

#include "devices/cpu/kernels/panels.hpp"

namespace troupe::cpu {
namespace panels_avx512 {
namespace {

#include "devices/cpu/kernels/panel_lanes_512.inc"

struct Lanes : PanelLanes512 {
  static constexpr std::size_t kElements = 1;
  using Element = float;
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  static Vector words_of_terms(const float* from, std::size_t, std::size_t count) { return load_part(from, count); }
  static Vector words_of_last_term(const float* from, std::size_t count) { return load_part(from, count); }
  static Vector widened_part(const float* from, std::size_t count) { return load_part(from, count); }
  static void store_rounded(std::uint16_t*, Vector, std::size_t) {}  // results of f32 operands are f32
};

#include "devices/cpu/kernels/panels.inc"

constexpr PanelKernels kTable{"own:panels_avx512", kLanes, kVectors, kElements, multiply, finish, nullptr, add_rows};

}  // namespace
}  // namespace panels_avx512

const PanelKernels kAvx512PanelKernels = panels_avx512::kTable;

}  // namespace troupe::cpu
