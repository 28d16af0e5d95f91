#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace troupe::detail {

/// A point on the pen's path, x to the right and y down, in a digit of height 1. The curve may turn sharply at a
/// corner.
struct Knot {
  float x = 0;
  float y = 0;
  bool corner = false;
};

/// A line drawn without lifting the pen: a smooth curve through the knots.
using Stroke = std::vector<Knot>;

/// One way to write a digit, and its frequency among the ways to write that digit.
struct Style {
  float weight = 1;
  std::vector<Stroke> strokes;
};

/// The ways to write `digit`, 0 to 9.
const std::vector<Style>& styles_of(std::uint32_t digit);

}  // namespace troupe::detail
