#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/data/augment.hpp"

namespace troupe {

/// An image of bytes [height, width, channels] in memory of another owner; each row begins `stride` bytes after the
/// previous one.
struct PixelView {
  const std::uint8_t* data = nullptr;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  std::size_t stride = 0;
};

/// Resizes `window` of `from` to `to` [height, width, channels], antialiased: with a triangle filter that is as wide as
/// the factor by which the image shrinks. An image of four channels, the last of which is unused, may be written with
/// three: `channels`.
class Resizer {
 public:
  void resize(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
              std::uint32_t channels, std::uint8_t* to);

 private:
  std::vector<float> row_;     // pixels of four floats
  std::vector<float> narrow_;  // the same row as read, if pixels have fewer channels
  std::vector<float> down_weights_, across_weights_;
};

/// Writes augmented images into batches, for one Augmentation and one shape. Threads: any; the memory of a call is in
/// `Scratch`.
class ImageWriter {
 public:
  /// Memory of one caller, reused from image to image.
  struct Scratch {
    Resizer resizer;
    std::vector<std::uint8_t> resized;
    std::vector<std::uint8_t> arranged;
  };

  /// For batches of images with `channels` channels. `training`: with random operations.
  ImageWriter(Augmentation augmentation, std::uint32_t channels, bool training);

  const Augmentation& augmentation() const noexcept { return augmentation_; }
  /// The choices for `sample`, an image of this size.
  DrawnAugmentation draw(std::uint64_t seed, const Sample& sample, std::uint32_t height, std::uint32_t width) const;
  /// Writes `image`, changed by `drawn`, to `to`, [height, width, channels] of f32 or bf16. The image has the
  /// size of the batch, or is resized to it from `drawn.window`. It may have one unused channel more than the
  /// batch.
  void write(const PixelView& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
             Scratch& scratch) const;

 private:
  PixelView fitted(const PixelView& image, const PixelWindow& window, Scratch& scratch) const;
  PixelView arranged(const PixelView& image, const DrawnAugmentation& drawn, Scratch& scratch) const;
  void convert(const PixelView& image, DType dtype, std::byte* to) const;

  Augmentation augmentation_;
  std::uint32_t channels_;
  bool training_;
  std::vector<float> scale_, offset_;  // for value / 255, by element of a stretch of whole pixels
};

}  // namespace troupe
