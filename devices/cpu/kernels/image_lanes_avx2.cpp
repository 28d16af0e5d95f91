#include <immintrin.h>

#include "devices/cpu/kernels/image_lanes.hpp"

namespace troupe::cpu {
namespace {

#include "devices/cpu/kernels/lanes_256.inc"

struct Lanes : Lanes256 {
  static constexpr std::size_t kSums = 12, kFilters = 3, kColumns = 4;
  static Vector one() { return _mm256_set1_ps(1); }
  static std::uint32_t word(const float* from, std::size_t) { return __builtin_bit_cast(std::uint32_t, *from); }
  static void round(const float* sums, std::size_t elements, std::uint32_t* to) {
    for (std::size_t e = 0; e < elements; ++e) store(to + e * kLanes, load(sums + e * kLanes));
  }
  static void pair_images(std::uint32_t*, Vector, Vector) {}
};

#include "devices/cpu/kernels/image_lanes.inc"

}  // namespace

const LaneKernels kAvx2LaneKernels{"own:lanes_avx2", kLanes,        kElements,        forward_words,
                                   to_input_words,   pack_forward,  pack_to_input,    forward,
                                   to_input,         input_words,   gradient_words,   arrange_input,
                                   arrange_gradient, filter_blocks, to_weights_words, to_weights};

}  // namespace troupe::cpu
