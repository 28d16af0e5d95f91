#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/source.hpp"

namespace troupe {

/// A part of an image, in its pixels; edges may be between pixels.
struct PixelWindow {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
  friend bool operator==(const PixelWindow&, const PixelWindow&) = default;
};

/// How an image is brought to the size that a batch has.
enum class Fit : std::uint8_t { none, resize, center_crop, random_crop };

/// The operations on a data set's images when a batch is filled: data.augment as a value. image_augmenter.cpp applies
/// them to pixels. The operations are applied in
/// the order of the members, in whatever order they were written. Random operations apply to training samples only;
/// samples of a test set are brought to the same size without randomness, and normalized.
struct Augmentation {
  Fit fit = Fit::none;
  std::uint32_t height = 0;  // pixels, after `fit`; 0 without it
  std::uint32_t width = 0;
  double part = 0;               // center_crop: of the shorter side; random_crop: smallest fraction of the area
  std::uint32_t padding = 0;     // pixels on each side, before a window of the image's size is cut out; 0: none
  double flip = 0;               // probability of being mirrored left to right
  double brightness = 0;         // factors are random, from 1 - this to 1 + this
  double contrast = 0;           // likewise
  double saturation = 0;         // likewise
  std::vector<float> mean;       // by channel, or one for all; subtracted from value / 255. Empty: not used
  std::vector<float> deviation;  // of the same size; the divisor
  std::uint32_t cutout = 0;      // side in pixels of a square that becomes 0; 0: none
  friend bool operator==(const Augmentation&, const Augmentation&) = default;

  bool changes_colors() const noexcept { return brightness != 0 || contrast != 0 || saturation != 0; }
  /// The shape of the result for images [height, width, channels] of shape `shape`. Throws Error{invalid} if the number
  /// of channels does not fit `normalize`, or if the padding is larger than the image.
  Shape shape_of(const Shape& shape) const;
};

/// One operation of data.augment, for people. The parser, the reference and the docs use these rows.
struct AugmentOperation {
  std::string_view name;
  std::string_view example;  // as written in data.augment
  std::string_view help;     // sentences
};
std::span<const AugmentOperation> augment_operations();

/// What is wrong with `written` ("crop:4"), as a phrase that begins with a verb; empty: nothing.
std::string find_augment_fault(std::string_view written);
/// What is wrong with all operations together; empty: nothing.
std::string find_augment_fault(std::span<const std::string> written);
/// Throws Error{invalid} with the text of find_augment_fault().
Augmentation parse_augmentation(std::span<const std::string> written);

/// The random choices for one sample, or for a test set the fixed ones. They depend only on (seed, epoch, index). Each
/// operation has random numbers of its own, so adding an operation does not change the others.
struct DrawnAugmentation {
  PixelWindow window;     // the part of the source image that is used
  std::int32_t down = 0;  // pixels by which the padded window is moved
  std::int32_t right = 0;
  bool flipped = false;
  float brightness = 1;
  float contrast = 1;
  float saturation = 1;
  std::int32_t cut_row = 0;  // center of the square that is cut out
  std::int32_t cut_column = 0;
  friend bool operator==(const DrawnAugmentation&, const DrawnAugmentation&) = default;
};

/// For a source image of `height` x `width` pixels.
DrawnAugmentation draw_augmentation(const Augmentation& augmentation, std::uint64_t seed, const Sample& sample,
                                    std::uint32_t height, std::uint32_t width);
/// The same for a sample of a test set, without randomness.
DrawnAugmentation plain_augmentation(const Augmentation& augmentation, std::uint32_t height, std::uint32_t width);

}  // namespace troupe
