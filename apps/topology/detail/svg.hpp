#pragma once

#include <string>

// Shared by pictures of machines and of plans.
namespace troupe::topology::detail {

inline constexpr double kLetter = 6.5;  // average width at 11 px

/// A line of text, cut to `width`. `style`: a class of both pictures' style sheet.
std::string words(const char* style, double x, double y, const std::string& content, double width);

/// The picture of this size: its style sheet, for the reader's light or dark scheme, its background and `content`.
std::string svg(double width, double height, const std::string& title, const std::string& content);

}  // namespace troupe::topology::detail
