#include "runtime/data/image_writer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe {
namespace {

using detail::Taps;

constexpr std::size_t kStretchElements = 1024;  // about this many scales and offsets are kept: 8 KiB

/// Mirrors `count` pixels, and takes the first kTo of their channels.
template <std::size_t kFrom, std::size_t kTo>
void mirror(std::uint8_t* __restrict to, const std::uint8_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t c = 0; c < kTo; ++c) to[i * kTo + c] = from[(count - 1 - i) * kFrom + c];
}
void mirror_row(std::uint8_t* to, std::size_t to_channels, const std::uint8_t* from, std::size_t from_channels,
                std::size_t count) {
  if (from_channels == 1) return mirror<1, 1>(to, from, count);
  if (from_channels == 3) return mirror<3, 3>(to, from, count);
  if (to_channels == 3) return mirror<4, 3>(to, from, count);
  mirror<4, 4>(to, from, count);
}
/// Takes three of four channels.
void narrow_row(std::uint8_t* __restrict to, const std::uint8_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t c = 0; c < 3; ++c) to[i * 3 + c] = from[i * 4 + c];
}

/// Mean of 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), from exact sums.
float mean_grey(const std::uint8_t* pixels, std::size_t count_pixels, std::uint32_t channels) {
  std::uint64_t sums[3] = {0, 0, 0};
  if (channels == 1) {
    for (std::size_t i = 0; i < count_pixels; ++i) sums[0] += pixels[i];
    return static_cast<float>(static_cast<double>(sums[0]) / static_cast<double>(count_pixels));
  }
  for (std::size_t i = 0; i < count_pixels; ++i)
    for (std::size_t c = 0; c < 3; ++c) sums[c] += pixels[3 * i + c];
  const double weighted = 0.299 * static_cast<double>(sums[0]) + 0.587 * static_cast<double>(sums[1]) +
                          0.114 * static_cast<double>(sums[2]);
  return static_cast<float>(weighted / static_cast<double>(count_pixels));
}

/// Brightness b, contrast c around the mean, and saturation s around each pixel's grey g are one matrix: s (c (b x - m)
/// + m) + (1 - s) times the grey of that, with m = b * mean.
void jitter(std::uint8_t* pixels, std::size_t count_pixels, std::uint32_t channels, const DrawnAugmentation& drawn) {
  constexpr float kGrey[3] = {0.299F, 0.587F, 0.114F};
  const float mean = drawn.brightness * mean_grey(pixels, count_pixels, channels);
  const float gain = drawn.contrast * drawn.brightness, added = (1.0F - drawn.contrast) * mean;
  if (channels == 1) {
    for (std::size_t i = 0; i < count_pixels; ++i) {
      const float value = std::clamp(gain * static_cast<float>(pixels[i]) + added, 0.0F, 255.0F);
      pixels[i] = static_cast<std::uint8_t>(value + 0.5F);
    }
    return;
  }
  float matrix[12];
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      const float own = row == column ? drawn.saturation : 0.0F;
      matrix[row * 4 + column] = gain * (own + (1.0F - drawn.saturation) * kGrey[column]);
    }
    matrix[row * 4 + 3] = added;
  }
  detail::best_pixel_kernels().mix_colors(pixels, matrix, count_pixels);
}

/// The source pixels and weights for each pixel along one axis. The weights are stored elsewhere.
struct AxisTaps {
  std::size_t count_taps = 0;
  std::vector<Taps> taps;
};

/// For `to` pixels from the range [first, first + extent) of `from` pixels, with a triangle filter. `weights`: their
/// storage.
AxisTaps make_taps(double first, double extent, std::uint32_t from, std::uint32_t to, std::vector<float>& weights) {
  const double step = extent / to;
  const double reach = std::max(1.0, step);  // half of the filter's width
  AxisTaps axis;
  axis.count_taps = std::min<std::size_t>(static_cast<std::size_t>(std::ceil(2 * reach)) + 1, from);
  axis.taps.resize(to);
  weights.assign(axis.count_taps * to, 0.0F);
  for (std::uint32_t i = 0; i < to; ++i) {
    const double center = first + (i + 0.5) * step;
    const auto last_first = static_cast<std::int64_t>(from - axis.count_taps);
    const auto begin = std::clamp(static_cast<std::int64_t>(std::floor(center - reach)), std::int64_t{0}, last_first);
    float* const own = weights.data() + axis.count_taps * i;
    double sum = 0;
    for (std::size_t k = 0; k < axis.count_taps; ++k) {
      const double distance =
          std::abs(static_cast<double>(begin + static_cast<std::int64_t>(k)) + 0.5 - center) / reach;
      const double weight = std::max(0.0, 1.0 - distance);
      own[k] = static_cast<float>(weight);
      sum += weight;
    }
    for (std::size_t k = 0; k < axis.count_taps; ++k) own[k] = static_cast<float>(own[k] / sum);
    axis.taps[i] = {static_cast<std::uint32_t>(begin), own};
  }
  return axis;
}

}  // namespace

/// First vertically, one row of floats at a time, then that row horizontally, so that there is never more than one row
/// of floats. Its pixels have four channels, one per vector lane.
void Resizer::resize(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
                     std::uint32_t channels, std::uint8_t* to) {
  const detail::PixelKernels& kernels = detail::best_pixel_kernels();
  const AxisTaps down = make_taps(window.top, window.height, from.height, height, down_weights_);
  AxisTaps across = make_taps(window.left, window.width, from.width, width, across_weights_);
  const std::size_t first = across.taps.front().first;
  const std::size_t end = across.taps.back().first + across.count_taps;
  for (Taps& taps : across.taps) taps.first -= static_cast<std::uint32_t>(first);
  const std::size_t elements = (end - first) * from.channels;
  row_.resize(4 * (end - first));
  narrow_.resize(from.channels == 4 ? 0 : elements);
  float* const blended = from.channels == 4 ? row_.data() : narrow_.data();
  for (std::uint32_t y = 0; y < height; ++y) {
    const std::uint8_t* const rows = from.data + down.taps[y].first * from.stride + first * from.channels;
    kernels.blend_rows(blended, rows, from.stride, down.taps[y].weights, down.count_taps, elements);
    if (from.channels != 4) {
      for (std::size_t x = 0; x < end - first; ++x)
        for (std::size_t c = 0; c < from.channels; ++c) row_[4 * x + c] = narrow_[x * from.channels + c];
    }
    kernels.blend_pixels(to + std::size_t{y} * width * channels, row_.data(), across.taps.data(), across.count_taps,
                         width, channels);
  }
}

ImageWriter::ImageWriter(Augmentation augmentation, std::uint32_t channels, bool training)
    : augmentation_(std::move(augmentation)), channels_(channels), training_(training) {
  const auto of_channel = [&](const std::vector<float>& values, std::size_t channel, float otherwise) {
    return values.empty() ? otherwise : values[values.size() == 1 ? 0 : channel];
  };
  TROUPE_CHECK(channels == 1 || channels == 3 || channels == 4, Code::unsupported, "images of ", channels, " channels");
  for (std::size_t i = 0; i < kStretchElements / channels * channels; ++i) {
    const float mean = of_channel(augmentation_.mean, i % channels, 0.0F);
    const float deviation = of_channel(augmentation_.deviation, i % channels, 1.0F);
    scale_.push_back(1.0F / deviation);
    offset_.push_back(mean == 0.0F ? 0.0F : -mean / deviation);
  }
}

DrawnAugmentation ImageWriter::draw(std::uint64_t seed, const Sample& sample, std::uint32_t height,
                                    std::uint32_t width) const {
  return training_ ? draw_augmentation(augmentation_, seed, sample, height, width)
                   : plain_augmentation(augmentation_, height, width);
}

PixelView ImageWriter::fitted(const PixelView& image, const PixelWindow& window, Scratch& scratch) const {
  if (augmentation_.fit == Fit::none) return image;
  const std::uint32_t height = augmentation_.height, width = augmentation_.width;
  scratch.resized.resize(std::size_t{height} * width * channels_);
  scratch.resizer.resize(image, window, height, width, channels_, scratch.resized.data());
  return {scratch.resized.data(), height, width, channels_, std::size_t{width} * channels_};
}

/// Moved, mirrored and without unused channels, in contiguous memory.
PixelView ImageWriter::arranged(const PixelView& image, const DrawnAugmentation& drawn, Scratch& scratch) const {
  const std::size_t row_bytes = std::size_t{image.width} * channels_;
  const bool stays = drawn.down == 0 && drawn.right == 0 && !drawn.flipped;
  const bool dense = image.channels == channels_ && image.stride == row_bytes;
  const bool recolored = training_ && augmentation_.changes_colors();
  if (stays && dense && !recolored) return image;
  scratch.arranged.resize(row_bytes * image.height);
  const auto height = static_cast<std::int64_t>(image.height), width = static_cast<std::int64_t>(image.width);
  for (std::int64_t y = 0; y < height; ++y) {
    std::uint8_t* const to = scratch.arranged.data() + static_cast<std::size_t>(y) * row_bytes;
    const std::int64_t from_y = y + drawn.down;
    if (from_y < 0 || from_y >= height) {
      std::memset(to, 0, row_bytes);
      continue;
    }
    const std::uint8_t* const from = image.data + static_cast<std::size_t>(from_y) * image.stride;
    // Columns [begin, end) of the window are inside the image; the others are black.
    const std::int64_t begin = std::clamp<std::int64_t>(-drawn.right, 0, width);
    const std::int64_t end = std::clamp<std::int64_t>(width - drawn.right, 0, width);
    const auto at = [&](std::int64_t x) { return static_cast<std::size_t>(x) * channels_; };
    const std::int64_t to_begin = drawn.flipped ? width - end : begin, to_end = drawn.flipped ? width - begin : end;
    const auto count = static_cast<std::size_t>(end - begin);
    const std::uint8_t* const source = from + static_cast<std::size_t>(begin + drawn.right) * image.channels;
    std::memset(to, 0, at(to_begin));
    if (drawn.flipped)
      mirror_row(to + at(to_begin), channels_, source, image.channels, count);
    else if (image.channels == channels_)
      std::memcpy(to + at(to_begin), source, at(to_end - to_begin));
    else
      narrow_row(to + at(to_begin), source, count);
    std::memset(to + at(to_end), 0, row_bytes - at(to_end));
  }
  if (recolored) jitter(scratch.arranged.data(), std::size_t{image.height} * image.width, channels_, drawn);
  return {scratch.arranged.data(), image.height, image.width, channels_, row_bytes};
}

void ImageWriter::convert(const PixelView& image, DType dtype, std::byte* to) const {
  const detail::PixelKernels& kernels = detail::best_pixel_kernels();
  const std::size_t total = std::size_t{image.height} * image.width * channels_;
  for (std::size_t done = 0; done < total; done += scale_.size()) {
    const std::size_t count = std::min(scale_.size(), total - done);
    if (dtype == DType::f32) {
      kernels.to_f32(reinterpret_cast<float*>(to) + done, image.data + done, scale_.data(), offset_.data(), count);
    } else {
      kernels.to_bf16(reinterpret_cast<std::uint16_t*>(to) + done, image.data + done, scale_.data(), offset_.data(),
                      count);
    }
  }
}

void ImageWriter::write(const PixelView& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
                        Scratch& scratch) const {
  const PixelView ready = arranged(fitted(image, drawn.window, scratch), drawn, scratch);
  convert(ready, dtype, to);
  if (!training_ || augmentation_.cutout == 0) return;
  const auto side = static_cast<std::int64_t>(augmentation_.cutout);
  const std::int64_t top = drawn.cut_row - side / 2, left = drawn.cut_column - side / 2;
  const auto height = static_cast<std::int64_t>(ready.height), width = static_cast<std::int64_t>(ready.width);
  const std::int64_t first = std::clamp<std::int64_t>(left, 0, width);
  const std::int64_t count = std::clamp<std::int64_t>(left + side, 0, width) - first;
  const std::size_t pixel_bytes = channels_ * size_bytes(dtype);
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + side, height); ++y)
    std::memset(to + static_cast<std::size_t>(y * width + first) * pixel_bytes, 0,
                static_cast<std::size_t>(count) * pixel_bytes);
}

}  // namespace troupe
