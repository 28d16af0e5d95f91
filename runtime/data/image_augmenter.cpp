#include "runtime/data/image_augmenter.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/detail/pixel_kernels.hpp"

namespace troupe {
namespace {

constexpr std::size_t kStretchElements = 1024;  // about as many scales and offsets are kept: 8 KiB

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

}  // namespace

ImageAugmenter::ImageAugmenter(Augmentation augmentation, std::uint32_t channels, bool training)
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

DrawnAugmentation ImageAugmenter::draw(std::uint64_t seed, const Sample& sample, std::uint32_t height,
                                       std::uint32_t width) const {
  return training_ ? draw_augmentation(augmentation_, seed, sample, height, width)
                   : plain_augmentation(augmentation_, height, width);
}

/// Moved, mirrored and without filling channels, in one contiguous piece.
PixelView ImageAugmenter::arranged(const PixelView& image, const DrawnAugmentation& drawn, Scratch& scratch) const {
  const std::size_t row_bytes = std::size_t{image.width} * channels_;
  const bool stays = drawn.down == 0 && drawn.right == 0 && !drawn.flipped;
  const bool dense = image.channels == channels_ && image.stride == row_bytes;
  if (stays && dense && !recolors()) return image;
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
  if (recolors()) jitter(scratch.arranged.data(), std::size_t{image.height} * image.width, channels_, drawn);
  return {scratch.arranged.data(), image.height, image.width, channels_, row_bytes};
}

void ImageAugmenter::convert(const std::uint8_t* from, std::size_t count, DType dtype, std::byte* to) const {
  const detail::PixelKernels& kernels = detail::best_pixel_kernels();
  for (std::size_t done = 0; done < count; done += scale_.size()) {
    const std::size_t now = std::min(scale_.size(), count - done);
    if (dtype == DType::f32) {
      kernels.to_f32(reinterpret_cast<float*>(to) + done, from + done, scale_.data(), offset_.data(), now);
    } else {
      kernels.to_bf16(reinterpret_cast<std::uint16_t*>(to) + done, from + done, scale_.data(), offset_.data(), now);
    }
  }
}

void ImageAugmenter::cut_out(const DrawnAugmentation& drawn, std::uint32_t image_height, std::uint32_t image_width,
                             DType dtype, std::byte* to) const {
  if (!training_ || augmentation_.cutout == 0) return;
  const auto side = static_cast<std::int64_t>(augmentation_.cutout);
  const std::int64_t top = drawn.cut_row - side / 2, left = drawn.cut_column - side / 2;
  const auto height = static_cast<std::int64_t>(image_height), width = static_cast<std::int64_t>(image_width);
  const std::int64_t first = std::clamp<std::int64_t>(left, 0, width);
  const std::int64_t count = std::clamp<std::int64_t>(left + side, 0, width) - first;
  const std::size_t pixel_bytes = channels_ * size_bytes(dtype);
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + side, height); ++y)
    std::memset(to + static_cast<std::size_t>(y * width + first) * pixel_bytes, 0,
                static_cast<std::size_t>(count) * pixel_bytes);
}

/// What the resizer is ready for. A row goes into the batch as soon as it is made, unless the image as a whole must be
/// seen or moved first.
void ImageAugmenter::write_fitted(const DrawnAugmentation& drawn, DType dtype, std::byte* to, Scratch& scratch) const {
  const std::uint32_t height = augmentation_.height, width = augmentation_.width;
  const std::size_t row_bytes = std::size_t{width} * channels_;
  if (is_arranged(drawn)) {
    scratch.resized.resize(row_bytes * height);
    for (std::uint32_t y = 0; y < height; ++y)
      scratch.resizer.write_row(y, channels_, scratch.resized.data() + y * row_bytes);
    const PixelView image{scratch.resized.data(), height, width, channels_, row_bytes};
    convert(arranged(image, drawn, scratch).data, row_bytes * height, dtype, to);
  } else {
    scratch.resized.resize(row_bytes);
    for (std::uint32_t y = 0; y < height; ++y) {
      scratch.resizer.write_row(y, channels_, scratch.resized.data());
      convert(scratch.resized.data(), row_bytes, dtype, to + y * row_bytes * size_bytes(dtype));
    }
  }
  cut_out(drawn, height, width, dtype, to);
}

void ImageAugmenter::write(const PixelPlanes& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
                           Scratch& scratch) const {
  TROUPE_CHECK(augmentation_.fit != Fit::none, Code::invalid, "planes are only written resized");
  scratch.resizer.begin(image, drawn.window, augmentation_.height, augmentation_.width,
                        drawn.flipped && !is_arranged(drawn));
  write_fitted(drawn, dtype, to, scratch);
}

void ImageAugmenter::write(const PixelView& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
                           Scratch& scratch) const {
  if (augmentation_.fit != Fit::none) {
    scratch.resizer.begin(image, drawn.window, augmentation_.height, augmentation_.width, channels_,
                          drawn.flipped && !is_arranged(drawn));
    return write_fitted(drawn, dtype, to, scratch);
  }
  const PixelView ready = arranged(image, drawn, scratch);
  convert(ready.data, std::size_t{ready.height} * ready.width * channels_, dtype, to);
  cut_out(drawn, ready.height, ready.width, dtype, to);
}

}  // namespace troupe
