#pragma once

#include <string>
#include <vector>

#include "runtime/data/encoded_images.hpp"
#include "runtime/data/find.hpp"

// What formats of encoded images have in common.
namespace troupe::detail {

EncodedImageOptions image_options(const DataOptions& options, bool training);
/// What look() tells of a set that it has read.
DataFacts facts_of_read(const DataSet& set);
/// The largest label + 1. Labels of a training set must be without gaps, so that one that is far off is an error and
/// not a class: Error{invalid} with `where`.
std::uint32_t count_label_classes(const std::vector<std::int32_t>& labels, const std::string& where);

}  // namespace troupe::detail
