#pragma once

#include "devices/cuda/kernels/products.hpp"

// Convolutions as products of matrices, whose elements are found by arithmetic.
namespace troupe::cuda {

/// A convolution's numbers. Images are [image, height, width, channels], weights [filter, height, width, channel of its
/// group], so that neighbours in memory are neighbours here; the gradient to weights is [filter, channel of its group,
/// height, width], as parameters are.
struct ConvolutionShape {
  std::uint32_t images, height, width, channels, out_height, out_width, filters;
  std::uint32_t kernel_height, kernel_width, padding_height, padding_width, dilation_height, dilation_width;
  std::uint32_t stride_height, stride_width, groups;
  Divisor by_image, by_width, by_out_image, by_out_width, by_kernel_width, by_channels, by_filters, by_stride_height,
      by_stride_width;  // channels and filters: of a group

  constexpr std::uint64_t taps() const noexcept { return std::uint64_t{kernel_height} * kernel_width; }
  constexpr std::uint32_t channels_of_group() const noexcept { return by_channels.divisor; }
  constexpr std::uint32_t filters_of_group() const noexcept { return by_filters.divisor; }
  constexpr std::uint64_t count_in() const noexcept { return std::uint64_t{images} * height * width * channels; }
  constexpr std::uint64_t count_out() const noexcept {
    return std::uint64_t{images} * out_height * out_width * filters;
  }
  constexpr std::uint64_t count_weights() const noexcept { return filters * taps() * channels_of_group(); }
};

#if !defined(__CUDACC__)
/// Of a shape whose other members are known.
inline void find_divisors(ConvolutionShape& s) noexcept {
  s.by_image = divisor_of(s.height * s.width), s.by_width = divisor_of(s.width);
  s.by_out_image = divisor_of(s.out_height * s.out_width), s.by_out_width = divisor_of(s.out_width);
  s.by_kernel_width = divisor_of(s.kernel_width);
  s.by_channels = divisor_of(s.channels / s.groups), s.by_filters = divisor_of(s.filters / s.groups);
  s.by_stride_height = divisor_of(s.stride_height), s.by_stride_width = divisor_of(s.stride_width);
}
#endif

/// The elements that the three products of a convolution read.
struct ConvolutionReads {
  const ConvolutionShape& shape;

  static constexpr std::uint64_t kOutside = ~std::uint64_t{0};

  /// Of the input, what output pixel `pixel` reads for tap `tap`, channel `channel` of the group.
  TROUPE_KERNEL_MEMBER std::uint64_t input(std::uint64_t group, std::uint32_t pixel, std::uint32_t tap,
                                           std::uint32_t channel) const {
    const std::uint32_t image = divide(pixel, shape.by_out_image), row = divide(pixel, shape.by_out_width);
    const std::uint32_t tap_row = divide(tap, shape.by_kernel_width);
    // Wraps around where it is outside.
    const std::uint32_t y = row * shape.stride_height + tap_row * shape.dilation_height - shape.padding_height;
    const std::uint32_t x = pixel * shape.stride_width + tap * shape.dilation_width - shape.padding_width;
    if (y >= shape.height || x >= shape.width) return kOutside;
    return ((std::uint64_t{image} * shape.height + y) * shape.width + x) * shape.channels +
           group * shape.channels_of_group() + channel;
  }
  /// Of the output, what reads input pixel `pixel` for tap `tap`, filter `filter` of the group.
  TROUPE_KERNEL_MEMBER std::uint64_t output(std::uint64_t group, std::uint32_t pixel, std::uint32_t tap,
                                            std::uint32_t filter) const {
    const std::uint32_t image = divide(pixel, shape.by_image), row = divide(pixel, shape.by_width);
    const std::uint32_t tap_row = divide(tap, shape.by_kernel_width);
    std::uint32_t y = row + shape.padding_height - tap_row * shape.dilation_height;
    std::uint32_t x = pixel + shape.padding_width - tap * shape.dilation_width;
    if ((y | x) >> 31 != 0) return kOutside;  // below 0
    const std::uint32_t h = divide(y, shape.by_stride_height), w = divide(x, shape.by_stride_width);
    if (y != 0 || x != 0 || h >= shape.out_height || w >= shape.out_width) return kOutside;
    return ((std::uint64_t{image} * shape.out_height + h) * shape.out_width + w) * shape.filters +
           group * shape.filters_of_group() + filter;
  }
};
TROUPE_KERNEL_BODY float load_inside(const void* from, Stored type, std::uint64_t index) {
  return index == ConvolutionReads::kOutside ? 0.0F : load(from, type, index);
}

/// The output of a convolution.
struct ConvolveArgs {
  const StreamState* stream;
  ProductTo to;
  const void* images;
  const void* weights;
  Stored images_type;
  Stored weights_type;
  ConvolutionShape shape;
  std::uint32_t reserved;
};
constexpr ProductExtents extents_of(const ConvolveArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, std::uint64_t{s.images} * s.out_height * s.out_width, s.filters_of_group(),
          s.taps() * s.channels_of_group()};
}

/// Rows: the pixels of the output; terms: taps, and channels in each.
struct ConvolutionProduct {
  const ConvolveArgs& args;
  ConvolutionReads reads;
  const void* images;
  const void* weights;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t group, std::uint64_t row, std::uint64_t term) const {
    auto channel = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(channel, args.shape.by_channels);
    return load_inside(images, args.images_type, reads.input(group, static_cast<std::uint32_t>(row), tap, channel));
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t group, std::uint64_t term, std::uint64_t filter) const {
    const std::uint64_t terms = args.shape.taps() * args.shape.channels_of_group();
    return load(weights, args.weights_type, column(group, filter) * terms + term);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t group, std::uint64_t column) const {
    return group * args.shape.filters_of_group() + column;
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t filter) const {
    return row * args.shape.filters + column(group, filter);
  }
};
TROUPE_KERNEL_BODY void convolve(const Block& block, const ConvolveArgs& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 ConvolutionProduct{args, {args.shape}, block.at(args.images), block.at(args.weights)});
}

/// The gradient to the images of a convolution.
struct ConvolveToImagesArgs {
  const StreamState* stream;
  ProductTo to;
  const void* gradient;  // to the output
  const void* weights;
  Stored gradient_type;
  Stored weights_type;
  ConvolutionShape shape;
  std::uint32_t reserved;
};
constexpr ProductExtents extents_of(const ConvolveToImagesArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, std::uint64_t{s.images} * s.height * s.width, s.channels_of_group(),
          s.taps() * s.filters_of_group()};
}

/// Rows: the pixels of the images; terms: taps, and filters in each.
struct ToImagesProduct {
  const ConvolveToImagesArgs& args;
  ConvolutionReads reads;
  const void* gradient;
  const void* weights;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t group, std::uint64_t row, std::uint64_t term) const {
    auto filter = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(filter, args.shape.by_filters);
    return load_inside(gradient, args.gradient_type, reads.output(group, static_cast<std::uint32_t>(row), tap, filter));
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t group, std::uint64_t term, std::uint64_t channel) const {
    auto filter = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(filter, args.shape.by_filters);
    const std::uint64_t row = (group * args.shape.filters_of_group() + filter) * args.shape.taps() + tap;
    return load(weights, args.weights_type, row * args.shape.channels_of_group() + channel);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t group, std::uint64_t column) const {
    return group * args.shape.channels_of_group() + column;
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t channel) const {
    return row * args.shape.channels + column(group, channel);
  }
};
TROUPE_KERNEL_BODY void convolve_to_images(const Block& block, const ConvolveToImagesArgs& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 ToImagesProduct{args, {args.shape}, block.at(args.gradient), block.at(args.weights)});
}

/// The gradient to the weights of a convolution.
struct ConvolveToWeightsArgs {
  const StreamState* stream;
  ProductTo to;
  const void* gradient;  // to the output
  const void* images;
  Stored gradient_type;
  Stored images_type;
  ConvolutionShape shape;
  std::uint32_t reserved;
};
constexpr ProductExtents extents_of(const ConvolveToWeightsArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, s.filters_of_group(), s.taps() * s.channels_of_group(),
          std::uint64_t{s.images} * s.out_height * s.out_width};
}

/// Rows: filters; columns: taps, and channels in each; terms: the pixels of the output.
struct ToWeightsProduct {
  const ConvolveToWeightsArgs& args;
  ConvolutionReads reads;
  const void* gradient;
  const void* images;

  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER float left(std::uint64_t group, std::uint64_t row, std::uint64_t term) const {
    return load(gradient, args.gradient_type, term * args.shape.filters + group * args.shape.filters_of_group() + row);
  }
  TROUPE_KERNEL_MEMBER float right(std::uint64_t group, std::uint64_t term, std::uint64_t column) const {
    auto channel = static_cast<std::uint32_t>(column);
    const std::uint32_t tap = divide(channel, args.shape.by_channels);
    return load_inside(images, args.images_type, reads.input(group, static_cast<std::uint32_t>(term), tap, channel));
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t, std::uint64_t column) const { return column; }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t column) const {
    auto channel = static_cast<std::uint32_t>(column);
    const std::uint32_t tap = divide(channel, args.shape.by_channels);
    const std::uint64_t filter = group * args.shape.filters_of_group() + row;
    return (filter * args.shape.channels_of_group() + channel) * args.shape.taps() + tap;
  }
};
TROUPE_KERNEL_BODY void convolve_to_weights(const Block& block, const ConvolveToWeightsArgs& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 ToWeightsProduct{args, {args.shape}, block.at(args.gradient), block.at(args.images)});
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const ConvolveArgs& args) {
  touched.reads(args.images, args.shape.count_in() * bytes_of(args.images_type));
  touched.reads(args.weights, args.shape.count_weights() * bytes_of(args.weights_type));
  declare(touched, args.to, args.shape.filters, args.to.count);
}
inline void declare(Accesses& touched, const ConvolveToImagesArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.reads(args.weights, args.shape.count_weights() * bytes_of(args.weights_type));
  declare(touched, args.to, 0, args.to.count);
}
inline void declare(Accesses& touched, const ConvolveToWeightsArgs& args) {
  touched.reads(args.gradient, args.shape.count_out() * bytes_of(args.gradient_type));
  touched.reads(args.images, args.shape.count_in() * bytes_of(args.images_type));
  declare(touched, args.to, 0, args.to.count);
}
#endif

}  // namespace troupe::cuda
