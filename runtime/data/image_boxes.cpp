#include "runtime/data/image_boxes.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

constexpr std::size_t kBoxNumbers = 4;  // left, top, right, bottom

/// Clips a box to the image, 0 to 1. False: its center is outside, and the object must be left out.
bool crop_object(BoxedObject& object) {
  const auto is_inside = [](double x) { return x >= 0 && x <= 1; };
  if (!is_inside((object.left + object.right) / 2) || !is_inside((object.top + object.bottom) / 2)) return false;
  for (double* const edge : {&object.left, &object.top, &object.right, &object.bottom})
    *edge = std::clamp(*edge, 0.0, 1.0);
  return true;
}

void write_box(const BoxedObject& object, DType dtype, std::size_t index, std::byte* row) {
  const double edges[kBoxNumbers]{object.left, object.top, object.right, object.bottom};
  for (std::size_t i = 0; i < kBoxNumbers; ++i) {
    const auto edge = static_cast<float>(edges[i]);
    if (dtype == DType::f32)
      reinterpret_cast<float*>(row)[index * kBoxNumbers + i] = edge;
    else
      reinterpret_cast<std::uint16_t*>(row)[index * kBoxNumbers + i] = to_bf16(edge);
  }
}

}  // namespace

std::vector<BoxedObject> moved_objects(std::span<const BoxedObject> objects, const Augmentation& augmentation,
                                       const DrawnAugmentation& drawn, std::uint32_t height, std::uint32_t width) {
  const bool fitted = augmentation.fit != Fit::none;
  const double out_height = fitted ? augmentation.height : height, out_width = fitted ? augmentation.width : width;
  const PixelWindow window = fitted ? drawn.window : PixelWindow{0, 0, out_height, out_width};
  const double right = drawn.right / out_width, down = drawn.down / out_height;
  std::vector<BoxedObject> moved;
  for (BoxedObject object : objects) {
    object.left = (object.left - window.left) / window.width;
    object.right = (object.right - window.left) / window.width;
    object.top = (object.top - window.top) / window.height;
    object.bottom = (object.bottom - window.top) / window.height;
    // Two crops, one after the other: what the first one cuts off is black in the second one, and not an object.
    if (!crop_object(object)) continue;
    object.left -= right;
    object.right -= right;
    object.top -= down;
    object.bottom -= down;
    if (!crop_object(object)) continue;
    if (drawn.flipped) object.left = 1 - std::exchange(object.right, 1 - object.left);
    moved.push_back(object);
  }
  return moved;
}

void ImageBoxes::add(std::uint32_t height, std::uint32_t width, std::span<const BoxedObject> objects) {
  for (const BoxedObject& object : objects) {
    TROUPE_CHECK(object.label >= 0 && static_cast<std::uint32_t>(object.label) < classes_, Code::invalid, "image ",
                 images_.size(), ": label ", object.label, " is not one of ", classes_, " classes");
  }
  objects_.insert(objects_.end(), objects.begin(), objects.end());
  images_.push_back({height, width, objects_.size()});
}

void ImageBoxes::add_broken(std::string fault) {
  faults_.emplace(images_.size(), std::move(fault));
  images_.push_back({0, 0, objects_.size()});
}

std::uint64_t ImageBoxes::size_bytes() const noexcept {
  return images_.size() * sizeof(Image) + objects_.size() * sizeof(BoxedObject);
}

std::vector<Field> ImageBoxes::fields() const {
  return {{std::string{kBoxes}, {{most_, kBoxNumbers}}, DType::f32},
          {std::string{kLabels}, {{most_}}, DType::i32, classes_},
          {std::string{kDifficult}, {{most_}}, DType::i32},
          {std::string{kCount}, {}, DType::i32}};
}

std::span<const BoxedObject> ImageBoxes::objects_of(std::uint64_t image) const {
  const std::uint64_t first = image == 0 ? 0 : images_.at(image - 1).end;
  return std::span{objects_}.subspan(first, images_.at(image).end - first);
}

std::string ImageBoxes::fault_of(std::uint64_t image) const {
  const auto at = faults_.find(image);
  return at == faults_.end() ? std::string{} : at->second;
}

std::string ImageBoxes::find_size_fault(std::uint64_t image, std::uint32_t height, std::uint32_t width) const {
  if (height == height_of(image) && width == width_of(image)) return {};
  return text("is ", height, " x ", width, " pixels large, but its annotation was made for ", height_of(image), " x ",
              width_of(image));
}

void ImageBoxes::write(std::span<const BoxedObject> objects, const BatchLayout::Entry& entry, std::byte* row) const {
  const std::string_view name = entry.field.name;
  const std::size_t count = std::min<std::size_t>(objects.size(), most_);
  auto* const numbers = reinterpret_cast<std::int32_t*>(row);
  if (name == kCount) *numbers = static_cast<std::int32_t>(count);
  if (name != kBoxes && name != kLabels && name != kDifficult) return;
  std::memset(row, name == kLabels ? 0xff : 0, entry.row_bytes());  // a label of -1 has all bits set
  for (std::size_t i = 0; i < count; ++i) {
    if (name == kBoxes) write_box(objects[i], entry.field.dtype, i, row);
    if (name == kLabels) numbers[i] = objects[i].label;
    if (name == kDifficult) numbers[i] = objects[i].difficult ? 1 : 0;
  }
}

}  // namespace troupe
