#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/idx.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kLeastClasses = 2;
constexpr std::uint32_t kUsualClasses = 10;  // up to here labels may leave gaps

// Both loops are plain enough for the compiler to vectorize.

void decode(const std::uint8_t* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) / 255.0F;
}

/// As to_bf16 of the above: to nearest even; a byte gives no NaN to look out for.
void decode(const std::uint8_t* from, std::size_t count, std::uint16_t* to) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(from[i]) / 255.0F);
    to[i] = static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

}  // namespace

std::uint32_t count_classes(const IdxFile& labels, const IdxFile& test_labels) {
  std::array<std::uint64_t, 256> occurs{};  // where first, + 1
  for (std::size_t i = labels.content.size(); i > 0; --i) occurs[labels.content[i - 1]] = i;
  std::uint32_t classes = kLeastClasses;
  for (const auto* content : {&labels.content, &test_labels.content}) {
    for (const std::uint8_t label : *content)
      if (label < kUsualClasses) classes = std::max(classes, label + 1U);
  }
  if (occurs[kUsualClasses] > 0) classes = kUsualClasses;
  while (classes < occurs.size() && occurs[classes] > 0) ++classes;
  for (std::uint32_t label = classes; label < occurs.size(); ++label) {
    TROUPE_CHECK(occurs[label] == 0, Code::invalid, labels.name, ": byte ",
                 labels.header.header_bytes() + occurs[label] - 1, ": label ", label, ", but no label is ", classes,
                 ": the file is damaged or its classes are not numbered without gaps; fetch it again "
                 "or renumber the classes from 0");
  }
  return classes;
}

std::vector<Field> image_fields(const IdxHeader& images, std::uint32_t count_classes) {
  return {{std::string{kImage}, {{images.height, images.width, 1}}, DType::f32},
          {std::string{kLabel}, {}, DType::i32, count_classes}};
}

IdxSource::IdxSource(IdxFile images, IdxFile labels, std::uint32_t count_classes)
    : images_(std::move(images)), labels_(std::move(labels)), fields_(image_fields(images_.header, count_classes)) {
  TROUPE_CHECK(images_.header.count == labels_.header.count, Code::invalid, images_.name, ": ", images_.header.count,
               " images, but ", labels_.name, " has ", labels_.header.count,
               " labels; the files do not belong together");
  const auto stray = std::find_if(labels_.content.begin(), labels_.content.end(),
                                  [&](std::uint8_t label) { return label >= count_classes; });
  TROUPE_CHECK(stray == labels_.content.end(), Code::invalid, labels_.name, ": byte ",
               labels_.header.header_bytes() + static_cast<std::uint64_t>(stray - labels_.content.begin()), ": label ",
               int{*stray}, " is not one of the training set's ", count_classes, " classes; fetch the file again");
}

template <class Number>
void IdxSource::decode_rows(std::span<const Sample> samples, Number* inputs) const {
  const std::size_t features = images_.header.sample_bytes();
  for (const Sample& sample : samples) {
    decode(images_.content.data() + sample.index * features, features, inputs);
    inputs += features;
  }
}

void IdxSource::decode_field(std::span<const Sample> samples, DType dtype, std::byte* to) const {
  switch (dtype) {
    case DType::f32: return decode_rows(samples, reinterpret_cast<float*>(to));
    case DType::bf16: return decode_rows(samples, reinterpret_cast<std::uint16_t*>(to));
    case DType::i32: break;
  }
  auto* labels = reinterpret_cast<std::int32_t*>(to);
  for (const Sample& sample : samples) *labels++ = labels_.content[sample.index];
}

void IdxSource::decode_batch(const FillRequest& request) const {
  check_request(*this, request);
  for (const BatchLayout::Entry& entry : request.batch->entries())
    decode_field(request.samples, entry.field.dtype, request.slot + entry.offset);
}

void IdxSource::fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const {
  fill_on(threads, request, std::move(done), [this](const FillRequest& what) { decode_batch(what); });
}

}  // namespace troupe
