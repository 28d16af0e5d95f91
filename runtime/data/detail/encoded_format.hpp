#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/encoded_images.hpp"
#include "runtime/data/find_data.hpp"

// The common part of formats of encoded images.
namespace troupe::detail {

/// The first line of `text`, without its end. Removes both from `text`.
inline std::string_view take_line(std::string_view& text) noexcept {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}
DataSet encoded_set(EncodedImageSet train, EncodedImageSet test, const DataOptions& options);
/// The largest label + 1. The labels of a training set must have no gaps, so that a wrong number is an error and does
/// not become a class: otherwise Error{invalid} with `where`.
std::uint32_t count_label_classes(const std::vector<std::int32_t>& labels, const std::string& where);

}  // namespace troupe::detail
