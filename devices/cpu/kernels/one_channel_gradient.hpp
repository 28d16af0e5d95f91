#pragma once

#include <cstddef>
#include <vector>

#include "devices/cpu/kernels/one_channel.hpp"

namespace troupe::cpu {

/// The gradient to the weights of a OneChannelConvolution in f32. A vector has the filters of one output element, and
/// the sums of all elements of the kernel stay in registers while the output's elements pass by: images and gradients
/// are read as they lie.
struct OneChannelGradient {
  const char* name;
  /// Adds the sums of one image to `sums` [kernel height x kernel width + 1, filters], whose last row is the gradient
  /// to the biases. `image` [height, width], `gradient` [output height, output width, filters]. The number of filters
  /// must be a multiple of kFilters.
  void (*add)(const OneChannelConvolution& of, const float* image, const float* gradient, float* sums);

  static constexpr std::size_t kFilters = 4;
};

#if defined(TROUPE_KERNELS_X86)
extern const OneChannelGradient kAvx2OneChannelGradient;
extern const OneChannelGradient kAvx512OneChannelGradient;
#endif

/// All that this machine can execute and max_cpu_isa() allows, the narrowest first.
std::vector<const OneChannelGradient*> usable_one_channel_gradients();

}  // namespace troupe::cpu
