#include <immintrin.h>

#include "devices/cpu/kernels/image_lanes.hpp"

namespace troupe::cpu {
namespace {

#include "devices/cpu/kernels/lanes_512.inc"

struct Lanes : Lanes512 {
  static constexpr std::size_t kElements = 1;
  using Element = float;
  static std::uint32_t word(const float* from, std::size_t) { return __builtin_bit_cast(std::uint32_t, *from); }
  static Vector add_product(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  static Vector one() { return _mm512_set1_ps(1); }
  static void round(const float* sums, std::size_t elements, std::uint32_t* to) {
    for (std::size_t e = 0; e < elements; ++e) store(to + e * kLanes, load(sums + e * kLanes));
  }
  static void pair_images(std::uint32_t*, Vector, Vector) {}
};

#include "devices/cpu/kernels/image_lanes.inc"

}  // namespace

const LaneKernels kAvx512LaneKernels{"own:lanes_avx512", kLanes,        kElements,        forward_words,
                                     to_input_words,     pack_forward,  pack_to_input,    forward,
                                     to_input,           input_words,   gradient_words,   arrange_input,
                                     arrange_gradient,   filter_blocks, to_weights_words, to_weights};

}  // namespace troupe::cpu
