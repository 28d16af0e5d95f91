#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/data/idx.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kLeastClasses = 2;
constexpr std::uint32_t kUsualClasses = 10;  // below this, labels may have gaps

}  // namespace

std::uint32_t count_classes(const IdxFile& labels, const IdxFile& test_labels) {
  std::array<std::uint64_t, 256> occurs{};  // position of the first one, + 1
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

ByteImageSet idx_image_set(IdxFile images, IdxFile labels, std::uint32_t classes) {
  TROUPE_CHECK(images.header.count == labels.header.count, Code::invalid, images.name, ": ", images.header.count,
               " images, but ", labels.name, " has ", labels.header.count, " labels; the files do not belong together");
  const auto stray =
      std::find_if(labels.content.begin(), labels.content.end(), [&](std::uint8_t label) { return label >= classes; });
  TROUPE_CHECK(stray == labels.content.end(), Code::invalid, labels.name, ": byte ",
               labels.header.header_bytes() + static_cast<std::uint64_t>(stray - labels.content.begin()), ": label ",
               int{*stray}, " is not one of the training set's ", classes, " classes; fetch the file again");
  return {.height = images.header.height,
          .width = images.header.width,
          .channels = 1,
          .classes = classes,
          .pixels = std::move(images.content),
          .labels = std::move(labels.content)};
}

}  // namespace troupe
