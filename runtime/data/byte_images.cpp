#include "runtime/data/byte_images.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {

namespace {

/// Samples are at random positions in a set larger than any cache: the next one is prefetched while one is written.
void fetch_ahead(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t kLine = 64, kMost = 4096;
  for (std::size_t at = 0; at < std::min(count, kMost); at += kLine) __builtin_prefetch(bytes + at);
}

}  // namespace

std::vector<Field> image_fields(const Shape& image, std::uint32_t classes, const Augmentation& augmentation) {
  return {{std::string{kImage}, augmentation.shape_of(image), DType::f32},
          {std::string{kLabel}, {}, DType::i32, classes}};
}

ByteImages::ByteImages(ByteImageSet set, Augmentation augmentation, bool training)
    : set_(std::move(set)),
      fields_(image_fields({{set_.height, set_.width, set_.channels}}, set_.classes, augmentation)),
      augmenter_(std::move(augmentation), set_.channels, training) {
  const std::uint64_t image_bytes = std::uint64_t{set_.height} * set_.width * set_.channels;
  TROUPE_CHECK(set_.pixels.size() == set_.labels.size() * image_bytes, Code::invalid, set_.labels.size(),
               " labels, but ", set_.pixels.size(), " bytes of images of ", image_bytes, " bytes");
}

void ByteImages::fill_images(const FillRequest& request, const BatchLayout::Entry& entry) const {
  const std::size_t image_bytes = std::size_t{set_.height} * set_.width * set_.channels;
  ImageAugmenter::Scratch scratch;
  std::byte* to = request.slot + entry.offset;
  for (std::size_t row = 0; row < request.samples.size(); ++row) {
    const Sample& sample = request.samples[row];
    if (row + 1 < request.samples.size())
      fetch_ahead(set_.pixels.data() + request.samples[row + 1].index * image_bytes, image_bytes);
    const PixelView image{set_.pixels.data() + sample.index * image_bytes, set_.height, set_.width, set_.channels,
                          std::size_t{set_.width} * set_.channels};
    augmenter_.write(image, augmenter_.draw(request.seed, sample, set_.height, set_.width), entry.field.dtype, to,
                     scratch);
    to += entry.row_bytes();
  }
}

void ByteImages::fill_batch(const FillRequest& request) const {
  check_request(*this, request);
  for (const BatchLayout::Entry& entry : request.batch->entries()) {
    if (entry.field.name == kImage) {
      fill_images(request, entry);
      continue;
    }
    if (entry.field.name != kLabel) continue;
    auto* to = reinterpret_cast<std::int32_t*>(request.slot + entry.offset);
    for (const Sample& sample : request.samples) *to++ = set_.labels[sample.index];
  }
}

void ByteImages::fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const {
  fill_on(threads, request, std::move(done), [this](const FillRequest& what) { fill_batch(what); });
}

}  // namespace troupe
