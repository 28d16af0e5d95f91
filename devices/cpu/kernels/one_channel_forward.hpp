#pragma once

#include <cstddef>

#include "devices/cpu/kernels/one_channel.hpp"

namespace troupe::cpu {

/// The forward pass of a OneChannelConvolution in f32, of more than 16 filters, of which a second vector would be
/// mostly empty: the filters behind the first 16 are computed by fours, of four pixels in one vector.
struct OneChannelForward {
  const char* name;
  /// Writes `weights` [filters, kernel height, kernel width] and `bias` [filters] (null: 0) to `packed`
  /// [packed_floats()].
  void (*pack)(const OneChannelConvolution& of, const float* weights, const float* bias, float* packed);
  /// One image. Requires suits().
  void (*convolve)(const OneChannelConvolution& of, const float* image, const float* packed, float* to);

  static constexpr std::size_t kHead = 16, kMostFilters = 24, kLeastWidth = 12;
  static constexpr bool suits(const OneChannelConvolution& of) {
    return of.filters > kHead && of.filters <= kMostFilters && of.output_width() >= kLeastWidth;
  }
  static constexpr std::size_t fours(const OneChannelConvolution& of) { return (of.filters - kHead + 3) / 4; }
  static constexpr std::size_t packed_floats(const OneChannelConvolution& of) {
    return (1 + of.kernel_height * of.kernel_width) * kHead * (1 + fours(of));
  }
};

/// Null: this machine cannot execute it, or max_cpu_isa() does not allow it.
const OneChannelForward* usable_one_channel_forward();

#if defined(TROUPE_KERNELS_X86)
extern const OneChannelForward kAvx512OneChannelForward;
#endif

}  // namespace troupe::cpu
