#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

/// A convolution of images of one channel, [height, width] bf16, without padding, in steps of one element, to
/// [output height, output width, filters] bf16. oneDNN multiplies by 16 filters at a time, and by single elements; here
/// pairs of elements are multiplied, and the last filters take narrower vectors.
struct OneChannelConvolution {
  std::size_t height = 0, width = 0;
  std::size_t kernel_height = 0, kernel_width = 0;  // at least 2 wide
  std::size_t filters = 0;                          // 1 to 32
  bool relu = false;

  std::size_t output_height() const noexcept { return height - kernel_height + 1; }
  std::size_t output_width() const noexcept { return width - kernel_width + 1; }
  /// Pairs of neighbouring elements that cover a row of the kernel; the last one overlaps where the width is odd.
  std::size_t pairs_of_row() const noexcept { return (kernel_width + 1) / 2; }
  /// 32-bit words of packed weights.
  std::size_t packed_words() const noexcept { return kernel_height * pairs_of_row() * kLanes; }

  static constexpr std::size_t kLanes = 32;
};

/// Whether this processor has, and max_cpu_isa() allows, the instructions.
bool may_convolve_one_channel();
/// `weights` [filters, kernel height, kernel width] bf16, for convolve_one_channel.
void pack_one_channel(const OneChannelConvolution& of, const std::uint16_t* weights, std::uint32_t* packed);
/// One image. `bias` [OneChannelConvolution::kLanes] f32; sums are kept in f32.
void convolve_one_channel(const OneChannelConvolution& of, const std::uint16_t* image, const std::uint32_t* packed,
                          const float* bias, std::uint16_t* to);

}  // namespace troupe::cpu
