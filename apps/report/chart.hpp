#pragma once

#include <limits>
#include <string>
#include <vector>

namespace troupe::report {

/// A point of a curve; if y is not finite, there is a gap, with a cross at the upper edge.
struct Dot {
  double x = 0;
  double y = 0;
  std::string title;  // shown when the pointer is on it; may be empty
};

struct Curve {
  std::string name;   // in the legend
  std::string style;  // a class of the page's style, which has its colour
  bool dashed = false;
  bool marked = true;  // draws dots if there are few
  std::vector<Dot> dots;
};

enum class Scale { linear, whole, logarithmic };  // whole: ticks at whole numbers only

/// One axis over [low, high], low < high.
struct Axis {
  std::string label;
  double low = 0;
  double high = 1;
  Scale scale = Scale::linear;
};

/// An axis with round numbers around `low` and `high` as its ends, for drawing values on it.
Axis rounded_axis(std::string label, double low, double high, Scale scale = Scale::linear);
/// Round numbers inside the axis, at most `most` of them.
std::vector<double> ticks_of(const Axis& axis, std::size_t most = 6);
/// One number per tick, with enough digits to distinguish the ticks: 0.25, 40k, 1e-05.
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

/// Keeps at most about `most` dots: of neighbours the lowest, the highest and the gaps.
std::vector<Dot> thinned(const std::vector<Dot>& dots, std::size_t most);

/// An inline SVG of curves; `description` is for readers who do not see pictures.
std::string line_chart(const std::string& description, const Axis& x, const Axis& y, const std::vector<Curve>& curves);

/// Shares of a whole over intervals: shares[i] belongs to [edges[i], edges[i + 1]].
struct Layer {
  std::string name;
  std::string style;
  std::vector<double> shares;  // of 1
};
std::string share_chart(const std::string& description, const Axis& x, const std::vector<double>& edges,
                        const std::vector<Layer>& layers);
/// One bar of fractions of 1, in order.
std::string share_bar(const std::string& description, const std::vector<Layer>& layers);

/// "line" of a curve or "box" of an area, for a legend.
std::string legend_line(const Curve& curve);
std::string legend_box(const std::string& style);

}  // namespace troupe::report
