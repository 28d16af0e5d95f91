#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/image_boxes.hpp"

namespace troupe {

/// What an annotation of Pascal VOC says of an image. Its elements are read as follows: size/width and size/height, in
/// pixels; for each object its name, difficult (0 or 1, may be missing) and bndbox with xmin, ymin, xmax and ymax: the
/// first and the last pixel of the object, counted from 1. Others are not looked at.
struct VocAnnotation {
  struct Object {
    std::string name;
    std::uint64_t line = 0;  // of the file, from 1 on
    BoxedObject box{};       // its label is not set
  };
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::vector<Object> objects;
};

/// Reads an XML file. `name` stands for the file in messages. Throws Error{invalid} with file, line and cause: it is no
/// XML, larger than 4 MiB, something is missing or no number, or a box is empty or reaches out of the image.
VocAnnotation parse_voc_annotation(std::string_view text, const std::string& name);

/// Reads a list of ImageSets/Main: the name of an image in each line, without folder and ending; empty lines mean
/// nothing. Throws Error{invalid} with file, line and cause.
std::vector<std::string> parse_voc_list(std::string_view text, const std::string& name);

}  // namespace troupe
