#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace troupe::detail {

/// A point that the pen passes, x to the right and y down, the digit about 1 high. At a corner the curve may turn
/// sharply.
struct Knot {
  float x = 0;
  float y = 0;
  bool corner = false;
};

/// What the pen draws without leaving the paper: a smooth curve through the knots.
using Stroke = std::vector<Knot>;

/// One way to write a digit, and how common it is among the ways to write that digit.
struct Style {
  float weight = 1;
  std::vector<Stroke> strokes;
};

/// The ways to write `digit`, 0 to 9.
const std::vector<Style>& styles_of(std::uint32_t digit);

}  // namespace troupe::detail
