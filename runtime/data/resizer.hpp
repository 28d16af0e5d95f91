#pragma once

#include <array>
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

/// One channel of an image, in memory of somebody else. A subsampled one has a sample for each `down` x `across` pixels
/// of the image.
struct PixelPlane {
  const std::uint8_t* data = nullptr;  // of row `first_row`
  std::size_t stride = 0;
  std::uint32_t first_row = 0;  // rows before this one and from `end_row` on are not in memory
  std::uint32_t end_row = 0;
  std::uint32_t height = 0;  // in samples, of the whole image
  std::uint32_t width = 0;
  std::uint32_t down = 1;
  std::uint32_t across = 1;
};

/// An image whose channels lie apart.
struct PixelPlanes {
  std::array<PixelPlane, 4> planes{};
  std::uint32_t count = 0;
  std::uint32_t height = 0;  // of the image, in pixels
  std::uint32_t width = 0;
  bool luma = false;  // three planes are Y, Cb and Cr of JFIF instead of red, green and blue
};

/// Resizes a window of an image, antialiased: a triangle filter that is as wide as the factor by which the image gets
/// smaller. Subsampled planes are never brought to the size of the image: their filter is this one after linear
/// interpolation between their samples, as libjpeg's "fancy" upsampling does it. Memory is used again from image to
/// image. Threads: one.
class Resizer {
 public:
  /// Prepares for `window` of `from`, to be made `height` x `width`, mirrored if `flipped`. `from` stays until the last
  /// row is written.
  void begin(const PixelPlanes& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
             bool flipped);
  /// The same for the first `channels` of the channels of `from`.
  void begin(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
             std::uint32_t channels, bool flipped);
  /// Writes row `y` as [width, channels]. Three channels of an image of one plane are the same.
  void write_row(std::uint32_t y, std::uint32_t channels, std::uint8_t* to);

  /// All of an image at once, to `to` [height, width, channels].
  void resize(const PixelView& from, const PixelWindow& window, std::uint32_t height, std::uint32_t width,
              std::uint32_t channels, std::uint8_t* to);

 private:
  /// The weights of one axis of a plane: of result i, those of the samples from first[i] on.
  struct Axis {
    std::size_t taps = 0;      // weights of each that may differ from 0
    std::size_t distance = 0;  // between the weights of one and of the next
    std::vector<std::uint32_t> first;
    std::vector<std::int16_t> weights;
  };
  /// A plane's axes, and the order of `across` that some kernels read instead.
  struct Filter {
    Axis down, across;
    std::uint32_t first_column = 0;  // of the plane; across.first counts from it
    std::uint32_t columns = 0;       // that are read
    std::size_t pairs = 0;
    std::vector<std::uint32_t> group_first;
    std::vector<std::uint16_t> picks;
    std::vector<std::int16_t> pick_weights;
  };
  struct Stretch {
    double first, extent;
    std::uint32_t pixels;   // of the image
    std::uint32_t samples;  // of the plane
    std::uint32_t factor;
  };
  void make_axis(const Stretch& stretch, std::uint32_t to, Axis& axis);
  void make_filter(const PixelPlane& plane, const PixelWindow& window, Filter& filter);
  void arrange_groups(Filter& filter) const;
  const Filter& filter_of(std::uint32_t plane) const { return filters_[shared_[plane]]; }

  PixelPlanes from_;
  std::uint32_t height_ = 0, width_ = 0;
  bool flipped_ = false;
  std::array<Filter, 4> filters_;
  std::array<std::uint32_t, 4> shared_{};  // whose filter each plane has
  std::vector<double> fine_, coarse_;
  std::vector<std::int16_t> row_;                  // blended down
  std::array<std::vector<std::int16_t>, 4> rows_;  // blended across, by plane
  std::array<std::vector<std::uint8_t>, 4> split_;
};

}  // namespace troupe
