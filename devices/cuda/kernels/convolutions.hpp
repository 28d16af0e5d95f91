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

/// What the three products of a convolution are given. Each reads two of: the images, the weights, the gradient to the
/// output.
struct ConvolutionArgs {
  const StreamState* stream;
  ProductTo to;
  const void* images;
  const void* weights;
  const void* gradient;
  Stored images_type;
  Stored weights_type;
  Stored gradient_type;
  ConvolutionShape shape;
};
/// The output of a convolution.
struct ConvolveArgs : ConvolutionArgs {};
/// The gradient to the images of a convolution.
struct ConvolveToImagesArgs : ConvolutionArgs {};
/// The gradient to the weights of a convolution.
struct ConvolveToWeightsArgs : ConvolutionArgs {};

/// A pixel of one side of a convolution, as the other side sees it, and what a tap adds to it.
struct ConvolutionPixel {
  std::uint32_t image, y, x;
};
struct ConvolutionTap {
  std::uint32_t y, x, channel;  // of all groups; or a filter
};

/// The elements that the products multiply. A term of a sum, or a column, that stands for a tap and a channel or filter
/// of the group is tap * (channels or filters of a group) + channel or filter.
struct ConvolutionElements {
  const ConvolutionArgs& args;
  const void* images;
  const void* weights;
  const void* gradient;

  /// `by_channels`: or by filters.
  TROUPE_KERNEL_MEMBER ConvolutionTap tap(std::uint64_t group, std::uint64_t tap_and_channel,
                                          const Divisor& by_channels) const {
    const ConvolutionShape& shape = args.shape;
    auto channel = static_cast<std::uint32_t>(tap_and_channel);
    std::uint32_t column = divide(channel, by_channels);
    const std::uint32_t row = divide(column, shape.by_kernel_width);
    return {row * shape.dilation_height, column * shape.dilation_width,
            static_cast<std::uint32_t>(group) * by_channels.divisor + channel};
  }
  /// An output pixel: where its first tap reads. Wraps around where that is outside.
  TROUPE_KERNEL_MEMBER ConvolutionPixel reading(std::uint64_t at) const {
    const ConvolutionShape& shape = args.shape;
    auto x = static_cast<std::uint32_t>(at);
    const std::uint32_t image = divide(x, shape.by_out_image), y = divide(x, shape.by_out_width);
    return {image, y * shape.stride_height - shape.padding_height, x * shape.stride_width - shape.padding_width};
  }
  /// Of the images, what an output pixel reads for a tap and channel; 0 outside.
  TROUPE_KERNEL_MEMBER Element image(const ConvolutionPixel& pixel, const ConvolutionTap& tap) const {
    const ConvolutionShape& shape = args.shape;
    const std::uint32_t y = pixel.y + tap.y, x = pixel.x + tap.x;
    if (y >= shape.height || x >= shape.width) return {};
    return element_at(
        images, args.images_type,
        ((std::uint64_t{pixel.image} * shape.height + y) * shape.width + x) * shape.channels + tap.channel);
  }
  /// A pixel of the images: which output pixel its first tap would be, times the stride.
  TROUPE_KERNEL_MEMBER ConvolutionPixel read_by(std::uint64_t at) const {
    const ConvolutionShape& shape = args.shape;
    auto x = static_cast<std::uint32_t>(at);
    const std::uint32_t image = divide(x, shape.by_image), y = divide(x, shape.by_width);
    return {image, y + shape.padding_height, x + shape.padding_width};
  }
  /// Of the gradient to the output, what reads a pixel of the images for a tap and filter; 0 outside.
  TROUPE_KERNEL_MEMBER Element slope(const ConvolutionPixel& pixel, const ConvolutionTap& tap) const {
    const ConvolutionShape& shape = args.shape;
    std::uint32_t y = pixel.y - tap.y, x = pixel.x - tap.x;
    if ((y | x) >> 31 != 0) return {};  // below 0
    const std::uint32_t h = divide(y, shape.by_stride_height), w = divide(x, shape.by_stride_width);
    if (y != 0 || x != 0 || h >= shape.out_height || w >= shape.out_width) return {};
    return element_at(
        gradient, args.gradient_type,
        ((std::uint64_t{pixel.image} * shape.out_height + h) * shape.out_width + w) * shape.filters + tap.channel);
  }
};

template <class Product, class Args>
TROUPE_KERNEL_BODY void multiply_elements(const Block& block, const Args& args) {
  multiply_tiles(block, extents_of(args), args.to,
                 Product{{args, block.at(args.images), block.at(args.weights), block.at(args.gradient)}});
}

constexpr ProductExtents extents_of(const ConvolveArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, std::uint64_t{s.images} * s.out_height * s.out_width, s.filters_of_group(),
          s.taps() * s.channels_of_group()};
}
/// Rows: the pixels of the output, or of the images; terms: taps, and channels or filters in each.
template <bool kToImages>
struct PixelProduct : ConvolutionElements {
  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return true; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return !kToImages; }
  TROUPE_KERNEL_MEMBER Stored left_type() const { return kToImages ? args.gradient_type : args.images_type; }
  TROUPE_KERNEL_MEMBER Stored right_type() const { return args.weights_type; }
  TROUPE_KERNEL_MEMBER ConvolutionPixel left_row(std::uint64_t, std::uint64_t row) const {
    return kToImages ? read_by(row) : reading(row);
  }
  TROUPE_KERNEL_MEMBER ConvolutionTap left_term(std::uint64_t group, std::uint64_t term) const {
    return tap(group, term, kToImages ? args.shape.by_filters : args.shape.by_channels);
  }
  TROUPE_KERNEL_MEMBER Element left(const ConvolutionPixel& row, const ConvolutionTap& term) const {
    return kToImages ? slope(row, term) : image(row, term);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t right_column(std::uint64_t group, std::uint64_t filter_or_channel) const {
    if constexpr (kToImages) return filter_or_channel;
    return column(group, filter_or_channel) * args.shape.taps() * args.shape.channels_of_group();
  }
  TROUPE_KERNEL_MEMBER std::uint64_t right_term(std::uint64_t group, std::uint64_t term) const {
    if constexpr (!kToImages) return term;
    auto filter = static_cast<std::uint32_t>(term);
    const std::uint32_t tap = divide(filter, args.shape.by_filters);
    const std::uint64_t row = (group * args.shape.filters_of_group() + filter) * args.shape.taps() + tap;
    return row * args.shape.channels_of_group();
  }
  TROUPE_KERNEL_MEMBER Element right(std::uint64_t column, std::uint64_t term) const {
    return element_at(weights, args.weights_type, kToImages ? term + column : column + term);
  }
  TROUPE_KERNEL_MEMBER std::uint64_t column(std::uint64_t group, std::uint64_t column) const {
    return group * (kToImages ? args.shape.channels_of_group() : args.shape.filters_of_group()) + column;
  }
  TROUPE_KERNEL_MEMBER std::uint64_t index(std::uint64_t group, std::uint64_t row, std::uint64_t of_group) const {
    return row * (kToImages ? args.shape.channels : args.shape.filters) + column(group, of_group);
  }
};
TROUPE_KERNEL_BODY void convolve(const Block& block, const ConvolveArgs& args) {
  multiply_elements<PixelProduct</*kToImages=*/false>>(block, args);
}

constexpr ProductExtents extents_of(const ConvolveToImagesArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, std::uint64_t{s.images} * s.height * s.width, s.channels_of_group(),
          s.taps() * s.filters_of_group()};
}
TROUPE_KERNEL_BODY void convolve_to_images(const Block& block, const ConvolveToImagesArgs& args) {
  multiply_elements<PixelProduct</*kToImages=*/true>>(block, args);
}

constexpr ProductExtents extents_of(const ConvolveToWeightsArgs& args) noexcept {
  const ConvolutionShape& s = args.shape;
  return {s.groups, s.filters_of_group(), s.taps() * s.channels_of_group(),
          std::uint64_t{s.images} * s.out_height * s.out_width};
}
/// Rows: filters; columns: taps, and channels in each; terms: the pixels of the output.
struct ToWeightsProduct : ConvolutionElements {
  TROUPE_KERNEL_MEMBER bool left_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER bool right_by_terms() const { return false; }
  TROUPE_KERNEL_MEMBER Stored left_type() const { return args.gradient_type; }
  TROUPE_KERNEL_MEMBER Stored right_type() const { return args.images_type; }
  TROUPE_KERNEL_MEMBER std::uint64_t left_row(std::uint64_t group, std::uint64_t row) const {
    return group * args.shape.filters_of_group() + row;
  }
  TROUPE_KERNEL_MEMBER std::uint64_t left_term(std::uint64_t, std::uint64_t term) const {
    return term * args.shape.filters;
  }
  TROUPE_KERNEL_MEMBER Element left(std::uint64_t row, std::uint64_t term) const {
    return element_at(gradient, args.gradient_type, term + row);
  }
  TROUPE_KERNEL_MEMBER ConvolutionTap right_column(std::uint64_t group, std::uint64_t column) const {
    return tap(group, column, args.shape.by_channels);
  }
  TROUPE_KERNEL_MEMBER ConvolutionPixel right_term(std::uint64_t, std::uint64_t term) const { return reading(term); }
  TROUPE_KERNEL_MEMBER Element right(const ConvolutionTap& column, const ConvolutionPixel& term) const {
    return image(term, column);
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
  multiply_elements<ToWeightsProduct>(block, args);
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
