#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/image_writer.hpp"
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

/// "image" [height, width, channels] f32, as it is after the augmentation, and "label". Throws as
/// Augmentation::shape_of.
std::vector<Field> image_fields(const Shape& image, std::uint32_t classes, const Augmentation& augmentation);

/// The whole set is kept in memory; images are augmented on their way into a batch.
class ByteImages final : public Source {
 public:
  /// Throws Error{invalid} when the sizes contradict each other, or as Augmentation::shape_of.
  ByteImages(ByteImageSet set, Augmentation augmentation, bool training);

  std::uint64_t count_samples() const noexcept override { return set_.labels.size(); }
  /// As image_fields().
  const std::vector<Field>& fields() const noexcept override { return fields_; }
  void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const override;
  std::uint64_t size_bytes() const noexcept override { return set_.pixels.size() + set_.labels.size(); }

 private:
  void fill_images(const FillRequest& request, const BatchLayout::Entry& entry) const;
  void fill_batch(const FillRequest& request) const;

  ByteImageSet set_;
  std::vector<Field> fields_;
  ImageWriter writer_;
};

}  // namespace troupe
