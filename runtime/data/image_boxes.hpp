#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/augment.hpp"

namespace troupe {

/// The fields of a data set with boxes, besides the image: for each object its box, its class, and whether it is marked
/// difficult; and the number of objects.
inline constexpr std::string_view kBoxes = "boxes";
inline constexpr std::string_view kLabels = "labels";
inline constexpr std::string_view kDifficult = "difficult";
inline constexpr std::string_view kCount = "count";

/// An object in an image. Its box is in pixels, from the left and upper edges of the image, which are 0; edges may be
/// between pixels.
struct BoxedObject {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
  std::int32_t label = 0;  // counted from 0
  bool difficult = false;
  friend bool operator==(const BoxedObject&, const BoxedObject&) = default;
};

/// The objects of an image of `height` x `width` pixels after `drawn` of `augmentation`: boxes relative to the new
/// image, clipped to 0 to 1. Objects whose center is outside the new image are left out. Source: Liu et al. 2016 (SSD:
/// single shot multibox detector), section 2.2.
std::vector<BoxedObject> moved_objects(std::span<const BoxedObject> objects, const Augmentation& augmentation,
                                       const DrawnAugmentation& drawn, std::uint32_t height, std::uint32_t width);

/// The objects of all images of a data set, by image. Threads: any, after all images were added.
class ImageBoxes {
 public:
  /// A sample has room for `most` objects.
  ImageBoxes(std::uint32_t most, std::uint32_t classes) : most_(most), classes_(classes) {}

  /// Adds the next image, of `height` x `width` pixels. Throws Error{invalid} if a label is not below the number of
  /// classes.
  void add(std::uint32_t height, std::uint32_t width, std::span<const BoxedObject> objects);
  /// Adds an image whose objects are not known, with the reason as a phrase.
  void add_broken(std::string fault);

  std::uint64_t count() const noexcept { return images_.size(); }
  std::uint64_t size_bytes() const noexcept;
  /// boxes [most, 4] f32, labels [most] i32, difficult [most] i32, count i32.
  std::vector<Field> fields() const;

  std::span<const BoxedObject> objects_of(std::uint64_t image) const;
  std::uint32_t height_of(std::uint64_t image) const { return images_.at(image).height; }
  std::uint32_t width_of(std::uint64_t image) const { return images_.at(image).width; }
  /// Why the objects of `image` are not known; empty: they are.
  std::string fault_of(std::uint64_t image) const;
  /// What is wrong with an image that actually has this size; empty: nothing.
  std::string find_size_fault(std::uint64_t image, std::uint32_t height, std::uint32_t width) const;

  /// Writes the first `most` of `objects`, as returned by moved_objects(), and padding after them (boxes of zeros,
  /// labels of -1) to a row of the field `entry`, one of fields(). Does nothing for other fields.
  void write(std::span<const BoxedObject> objects, const BatchLayout::Entry& entry, std::byte* row) const;

 private:
  struct Image {
    std::uint32_t height = 0;
    std::uint32_t width = 0;
    std::uint64_t end = 0;  // end of its objects
  };
  std::uint32_t most_;
  std::uint32_t classes_;
  std::vector<Image> images_;
  std::vector<BoxedObject> objects_;  // of all images, one after the other
  std::map<std::uint64_t, std::string> faults_;
};

}  // namespace troupe
