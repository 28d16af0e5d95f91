#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::cpu {

/// A convolution without groups and dilation of images [height, width, channels].
struct LaneConvolution {
  std::size_t height = 0, width = 0, channels = 0;
  std::size_t kernel_height = 0, kernel_width = 0;
  std::size_t stride_height = 1, stride_width = 1;
  std::size_t padding_height = 0, padding_width = 0;
  std::size_t filters = 0;
  bool relu = false;  // after the forward pass

  std::size_t padded_height() const noexcept { return height + 2 * padding_height; }
  std::size_t padded_width() const noexcept { return width + 2 * padding_width; }
  std::size_t output_height() const noexcept { return (padded_height() - kernel_height) / stride_height + 1; }
  std::size_t output_width() const noexcept { return (padded_width() - kernel_width) / stride_width + 1; }
  std::size_t input_elements() const noexcept { return height * width * channels; }
  std::size_t output_elements() const noexcept { return output_height() * output_width() * filters; }
  std::size_t count_weights() const noexcept { return filters * channels * kernel_height * kernel_width; }
};

/// Convolutions whose vectors have one image in each lane: no number of channels or filters wastes a part of a vector,
/// but the number of images does. A word is an f32, or two bf16: of neighbouring channels, or, for gradients to
/// weights, of two images. Images are f32 or bf16, [count, height, width, channels], and are brought into lanes and
/// back in scratch memory. Weights are [filters, channels, kernel height, kernel width].
struct LaneKernels {
  const char* name;
  std::size_t lanes;             // images that forward() and to_input() take
  std::size_t elements_of_word;  // channels and filters must be multiples of it

  /// Words of scratch memory for one group of images.
  std::size_t (*forward_words)(const LaneConvolution& of);
  std::size_t (*to_input_words)(const LaneConvolution& of);
  /// Packs weights into count_weights() / elements_of_word words.
  void (*pack_forward)(const LaneConvolution& of, const void* weights, std::uint32_t* packed);
  void (*pack_to_input)(const LaneConvolution& of, const void* weights, std::uint32_t* packed);
  /// `images` images, at most `lanes`. `bias` [filters]; null: none.
  void (*forward)(const LaneConvolution& of, std::size_t images, const void* input, const std::uint32_t* packed,
                  const float* bias, void* output, std::uint32_t* scratch);
  /// From the gradient to the output of as many images to that of the input.
  void (*to_input)(const LaneConvolution& of, std::size_t images, const void* gradient, const std::uint32_t* packed,
                   void* input_gradient, std::uint32_t* scratch);

  // The gradient to the weights needs all images at once, in groups of lanes * elements_of_word.
  /// Words for one group.
  std::size_t (*input_words)(const LaneConvolution& of);
  std::size_t (*gradient_words)(const LaneConvolution& of);
  void (*arrange_input)(const LaneConvolution& of, std::size_t images, const void* input, std::uint32_t* to);
  void (*arrange_gradient)(const LaneConvolution& of, std::size_t images, const void* gradient, std::uint32_t* to);
  std::size_t (*filter_blocks)(const LaneConvolution& of);
  /// Words of scratch memory for one block of filters.
  std::size_t (*to_weights_words)(const LaneConvolution& of);
  /// The gradients to the weights and biases (null: none) of one block of filters.
  void (*to_weights)(const LaneConvolution& of, std::size_t groups, const std::uint32_t* input,
                     const std::uint32_t* gradient, std::size_t block, float* weights, float* biases,
                     std::uint32_t* scratch);
};

#if defined(TROUPE_KERNELS_X86)
extern const LaneKernels kAvx2LaneKernels;
extern const LaneKernels kAvx512LaneKernels;
extern const LaneKernels kBf16LaneKernels;
#endif

/// All sets for f32, or for bf16, that this machine can execute and max_cpu_isa() allows, the narrowest first.
std::vector<const LaneKernels*> usable_lane_kernels(bool bf16);

}  // namespace troupe::cpu
