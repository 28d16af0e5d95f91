#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "devices/cuda/descriptors.hpp"

namespace troupe::cuda {

enum class ConvolutionKind : std::uint32_t { forward, to_images, to_weights };

/// A convolution, or a gradient of one, without its addresses. All tensors have one type. Images are [images, height,
/// width, channels], the output likewise, weights and the gradient to them [filters, kernel height, kernel width,
/// channels of a group].
struct ConvolutionForm {
  ConvolutionKind kind = ConvolutionKind::forward;
  Stored type = Stored::f32;
  bool has_bias = false;  // a bias of the output's type is added to the output
  bool has_relu = false;  // a ReLU is applied after the bias
  bool adds = false;      // the result is added to what its memory contains
  std::uint32_t images = 0, height = 0, width = 0, channels = 0, out_height = 0, out_width = 0, filters = 0, groups = 1;
  std::uint32_t kernel_height = 0, kernel_width = 0, padding_height = 0, padding_width = 0;
  std::uint32_t dilation_height = 1, dilation_width = 1, stride_height = 1, stride_width = 1;
  /// Alignments of the addresses: powers of two, at most 256.
  std::uint32_t images_alignment = 0, weights_alignment = 0, output_alignment = 0, bias_alignment = 0;
  friend auto operator<=>(const ConvolutionForm&, const ConvolutionForm&) = default;
};

// Ids of its tensors.
inline constexpr std::int64_t kConvolutionImages = 1, kConvolutionWeights = 2, kConvolutionOutput = 3,
                              kConvolutionBias = 4;

/// A text of one line that identifies the form.
std::string text_of(const ConvolutionForm& form);
/// The convolution, and what follows it in the same kernel.
std::vector<dnn::Descriptor> operations_of(const ConvolutionForm& form, Descriptors& made);

}  // namespace troupe::cuda
