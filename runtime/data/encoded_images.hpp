#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/broken.hpp"
#include "runtime/data/encoded_files.hpp"
#include "runtime/data/image_augmenter.hpp"
#include "runtime/data/image_boxes.hpp"
#include "runtime/data/source.hpp"
#include "runtime/data/stage_options.hpp"

namespace troupe {

/// Images that have a label or boxes, and are decoded on their way into a batch.
struct EncodedImageSet {
  std::unique_ptr<EncodedFiles> files;
  std::vector<std::int32_t> labels;  // by image
  std::uint32_t classes = 0;         // number of classes of these labels
  std::optional<ImageBoxes> boxes;   // instead of labels
};

/// How samples are made from them.
struct EncodedImageOptions {
  Augmentation augmentation;
  bool training = true;
  Broken broken = Broken::fatal;
  std::function<void(const std::string&)> note;  // called for files that are skipped, on any thread; may be empty
  StageOptions stage{};
  std::chrono::milliseconds patience{0};  // for reading a file, which counts as broken then; 0: any time
};

/// A set of encoded images. Without an operation that resizes them, all must have the size of the first one.
class EncodedImages final : public Source {
 public:
  /// Throws Error{invalid} if there are no images, if a label or an image's boxes are missing, if a label is not a
  /// class, or if the first image gives the size and is broken; like Augmentation::shape_of; and like StagedFiles.
  /// Blocks on the file system.
  EncodedImages(EncodedImageSet set, EncodedImageOptions options);

  std::uint64_t count_samples() const noexcept override { return set_.files->count(); }
  const std::vector<Field>& fields() const noexcept override { return fields_; }
  void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const override;
  std::uint64_t size_bytes() const noexcept override {
    return set_.files->size_bytes() + set_.labels.size() * sizeof set_.labels[0] +
           (set_.boxes ? set_.boxes->size_bytes() : 0);
  }
  bool reads_files() const noexcept override { return true; }
  void stop_waiting() const noexcept override { set_.files->stop_waiting(); }
  /// Rows that were filled without their image so far.
  std::uint64_t count_skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }

 private:
  struct Workplace;
  Shape measure_first() const;
  std::string write_image(const FillRequest& request, std::size_t row, const BatchLayout::Entry& entry,
                          Workplace& workplace) const;
  void take_broken(std::uint64_t image, const std::string& fault) const;
  void write_labels(const FillRequest& request, const BatchLayout::Entry& entry, const std::vector<bool>& broken) const;
  void write_boxes(const FillRequest& request, const std::vector<bool>& broken) const;
  void fill_batch(const FillRequest& request) const;

  EncodedImageSet set_;
  EncodedImageOptions options_;
  std::uint32_t height_ = 0, width_ = 0;  // of all images; 0: they may differ
  std::vector<Field> fields_;
  ImageAugmenter augmenter_;
  mutable std::atomic<std::uint64_t> skipped_{0};
  mutable std::atomic<std::uint64_t> skipped_in_a_row_{0};
};

}  // namespace troupe
