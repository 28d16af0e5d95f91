#pragma once

#include <string>

// Shared by pictures of machines and of plans.
namespace troupe::topology::detail {

inline constexpr double kLetter = 6.5;  // average width at 11 px

/// Cuts the text to this width in pixels.
std::string fitted(const std::string& words, double width);

/// Style classes of both pictures, for the reader's light or dark scheme.
extern const char* const kStyle;

}  // namespace troupe::topology::detail
