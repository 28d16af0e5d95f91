#pragma once

#include <string>
#include <string_view>

// What pictures of machines and of plans have in common.
namespace troupe::topology::detail {

inline constexpr double kLetter = 6.5;  // width of one at 11 px, on average

std::string escaped(std::string_view words);
/// Cut so that it fits into so many pixels.
std::string fitted(const std::string& words, double width);

/// Classes of both pictures, for the reader's light or dark scheme.
extern const char* const kStyle;

}  // namespace troupe::topology::detail
