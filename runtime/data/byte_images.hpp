#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/image_augmenter.hpp"
#include "runtime/data/source.hpp"

namespace troupe {

/// A set of labelled images of one size, as bytes in memory.
struct ByteImageSet {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  std::uint32_t classes = 0;
  std::vector<std::uint8_t> pixels;  // [count, height, width, channels]
  std::vector<std::uint8_t> labels;  // [count], below `classes`
};

/// "image" [height, width, channels] f32, after the augmentation, and "label". Throws like
/// Augmentation::shape_of.
std::vector<Field> image_fields(const Shape& image, std::uint32_t classes, const Augmentation& augmentation);

/// Keeps the whole set in memory; images are augmented when a batch is filled.
class ByteImages final : public Source {
 public:
  /// Throws Error{invalid} if the sizes contradict each other, and like Augmentation::shape_of.
  ByteImages(ByteImageSet set, Augmentation augmentation, bool training);

  std::uint64_t count_samples() const noexcept override { return set_.labels.size(); }
  /// Like image_fields().
  const std::vector<Field>& fields() const noexcept override { return fields_; }
  void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const override;
  std::uint64_t size_bytes() const noexcept override { return set_.pixels.size() + set_.labels.size(); }

 private:
  void fill_images(const FillRequest& request, const BatchLayout::Entry& entry) const;
  void fill_batch(const FillRequest& request) const;

  ByteImageSet set_;
  std::vector<Field> fields_;
  ImageAugmenter augmenter_;
};

}  // namespace troupe
