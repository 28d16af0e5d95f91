#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/data/augment.hpp"

namespace troupe {

/// An image of bytes [height, width, channels] in memory of somebody else; a row begins `stride` bytes after the one
/// before.
struct PixelView {
  const std::uint8_t* data = nullptr;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  std::size_t stride = 0;
};

/// Resizes `window` of `from` to `to` [height, width, channels], antialiased: a triangle filter that is as wide as the
/// factor by which the image gets smaller. An image of four channels, of which the last one is meant for nothing, may
/// be written as one of three: `channels`.
class Resizer {
 public:
  void resize(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
              std::uint32_t channels, std::uint8_t* to);

 private:
  std::vector<float> row_;     // pixels of four floats
  std::vector<float> narrow_;  // the same row as it comes in, where pixels have fewer
  std::vector<float> down_weights_, across_weights_;
};

/// Writes augmented images into batches. A value of one Augmentation and one shape. Threads: any; what a call needs for
/// itself is in `Scratch`.
class ImageWriter {
 public:
  /// Memory of one caller, used again from image to image.
  struct Scratch {
    Resizer resizer;
    std::vector<std::uint8_t> resized;
    std::vector<std::uint8_t> arranged;
  };

  /// For batches of `channels`-channel images. `training`: chance has its part.
  ImageWriter(Augmentation augmentation, std::uint32_t channels, bool training);

  const Augmentation& augmentation() const noexcept { return augmentation_; }
  /// What is done to `sample`, an image of this size.
  DrawnAugmentation draw(std::uint64_t seed, const Sample& sample, std::uint32_t height, std::uint32_t width) const;
  /// Writes `image` as `drawn` says to `to`, [height, width, channels] of f32 or bf16. The image has the size that the
  /// batch has room for, or is brought to it from `drawn.window`. It has one channel more than the batch where that is
  /// filling.
  void write(const PixelView& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
             Scratch& scratch) const;

 private:
  PixelView fitted(const PixelView& image, const PixelWindow& window, Scratch& scratch) const;
  PixelView arranged(const PixelView& image, const DrawnAugmentation& drawn, Scratch& scratch) const;
  void convert(const PixelView& image, DType dtype, std::byte* to) const;

  Augmentation augmentation_;
  std::uint32_t channels_;
  bool training_;
  std::vector<float> scale_, offset_;  // of value / 255, by element of a stretch of whole pixels
};

}  // namespace troupe
