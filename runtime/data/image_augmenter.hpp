#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/data/augment.hpp"
#include "runtime/data/resizer.hpp"

namespace troupe {

/// Writes augmented images into batches. A value of one Augmentation and one shape. Threads: any; what a call needs for
/// itself is in `Scratch`.
class ImageAugmenter {
 public:
  /// Memory of one caller, reused from image to image.
  struct Scratch {
    Resizer resizer;
    std::vector<std::uint8_t> resized;  // an image, or a row of it
    std::vector<std::uint8_t> arranged;
  };

  /// For batches of images with `channels` channels. `training`: with random operations.
  ImageAugmenter(Augmentation augmentation, std::uint32_t channels, bool training);

  const Augmentation& augmentation() const noexcept { return augmentation_; }
  /// The choices for `sample`, an image of this size.
  DrawnAugmentation draw(std::uint64_t seed, const Sample& sample, std::uint32_t height, std::uint32_t width) const;
  /// Writes `image`, changed by `drawn`, to `to`, [height, width, channels] of f32 or bf16. The image has the
  /// size of the batch, or is resized to it from `drawn.window`. It may have one unused channel more than the
  /// batch.
  void write(const PixelView& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
             Scratch& scratch) const;
  /// The same for an image that is brought to the size of the batch; images of three channels may have one plane.
  void write(const PixelPlanes& image, const DrawnAugmentation& drawn, DType dtype, std::byte* to,
             Scratch& scratch) const;

 private:
  bool recolors() const noexcept { return training_ && augmentation_.changes_colors(); }
  /// Whether a resized image is needed as a whole. If not, the resizer mirrors it and each row is written as it is
  /// made.
  bool is_arranged(const DrawnAugmentation& drawn) const noexcept {
    return drawn.down != 0 || drawn.right != 0 || recolors();
  }
  void write_fitted(const DrawnAugmentation& drawn, DType dtype, std::byte* to, Scratch& scratch) const;
  PixelView arranged(const PixelView& image, const DrawnAugmentation& drawn, Scratch& scratch) const;
  void convert(const std::uint8_t* from, std::size_t count, DType dtype, std::byte* to) const;
  void cut_out(const DrawnAugmentation& drawn, std::uint32_t height, std::uint32_t width, DType dtype,
               std::byte* to) const;

  Augmentation augmentation_;
  std::uint32_t channels_;
  bool training_;
  std::vector<float> scale_, offset_;  // for value / 255, by element of a stretch of whole pixels
};

}  // namespace troupe
