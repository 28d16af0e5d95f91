#pragma once

#include <string>
#include <vector>

#include "runtime/data/encoded_images.hpp"
#include "runtime/data/find_data.hpp"

// The common part of formats of encoded images.
namespace troupe::detail {

EncodedImageOptions image_options(const DataOptions& options, bool training);
/// The result of look() for a set that was read.
DataFacts facts_of_read(const DataSet& set);
/// The largest label + 1. The labels of a training set must have no gaps, so that a wrong number is an error and does
/// not become a class: otherwise Error{invalid} with `where`.
std::uint32_t count_label_classes(const std::vector<std::int32_t>& labels, const std::string& where);

}  // namespace troupe::detail
