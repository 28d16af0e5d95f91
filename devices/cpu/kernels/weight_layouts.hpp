#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

/// The weights of a convolution: [filters, channels, taps], where taps are the elements of a kernel, an odd number up
/// to kMostTaps. Filters are whole blocks of 16, channels of 32.
struct ConvolutionWeights {
  std::size_t filters = 0, channels = 0, taps = 0;
  std::size_t row = channels * taps;  // elements from one filter to the next, more than these if channels are left out
  static constexpr std::size_t kFilters = 16, kChannels = 32, kMostTaps = 9;

  std::size_t groups() const noexcept { return filters / kFilters; }
};

/// f32 weights with neighbouring filters: [filters / filters of a block, channels / channels of a block, taps, channels
/// of a block, filters of a block]. Filters of a block are a multiple of 16; both numbers divide those of the weights.
struct FilterBlocks {
  std::size_t filters = 0, channels = 0;
};

/// Copies 16 filters, those of `group`, between that layout and one of oneDNN's. oneDNN's own copies move an element at
/// a time.
struct WeightLayoutKernels {
  /// To bf16 [filters / block, taps, channels / 2, block, 2]; `block` is a multiple of 16 that divides the filters.
  void (*to_pairs_of_channels)(const ConvolutionWeights& of, std::size_t group, std::size_t block,
                               const std::uint16_t* from, std::uint16_t* to);
  /// To bf16 [filters / 16, channels / 16, taps, 8, 16, 2], a pair of filters behind 16 channels; the first two are
  /// exchanged if `channels_first`.
  void (*to_pairs_of_filters)(const ConvolutionWeights& of, std::size_t group, bool channels_first,
                              const std::uint16_t* from, std::uint16_t* to);
  void (*to_filters)(const ConvolutionWeights& of, std::size_t group, const FilterBlocks& blocks, const float* from,
                     float* to);
  /// To f32 [filters / 16, channels / 16, taps, 16, 16], channels in the end; the first two are exchanged if
  /// `channels_first`.
  void (*to_channels)(const ConvolutionWeights& of, std::size_t group, bool channels_first, const float* from,
                      float* to);
  /// From f32 [filters / 16, channels / 16, taps, 16, 16], filters in the end.
  void (*from_blocks)(const ConvolutionWeights& of, std::size_t group, const float* from, float* to);
};

#if defined(TROUPE_KERNELS_X86)
extern const WeightLayoutKernels kAvx512WeightLayouts;
#endif

/// Null if this machine has none or max_cpu_isa() does not allow them.
const WeightLayoutKernels* usable_weight_layouts();

}  // namespace troupe::cpu
