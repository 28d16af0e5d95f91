#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/image_boxes.hpp"

namespace troupe {

/// The content of an annotation of Pascal VOC. These elements are read: size/width and size/height, in pixels; for each
/// object its name, difficult (0 or 1, optional) and bndbox with xmin, ymin, xmax and ymax: the first and the last
/// pixel of the object, counted from 1. Others are ignored.
struct VocAnnotation {
  struct Object {
    std::string name;
    std::uint64_t line = 0;  // in the file, counted from 1
    BoxedObject box{};       // its label is not set
  };
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<Object> objects;
};

/// Reads an XML file. `name` stands for the file in messages. Throws Error{invalid} with file, line and cause if it is
/// not XML or larger than 4 MiB, if something is missing or not a number, or if a box is empty or not inside the image.
VocAnnotation parse_voc_annotation(std::string_view text, const std::string& name);

/// Reads a list of ImageSets/Main: the name of an image in each line, without folder and extension; empty lines are
/// ignored. Throws Error{invalid} with file, line and cause.
std::vector<std::string> parse_voc_list(std::string_view text, const std::string& name);

}  // namespace troupe
