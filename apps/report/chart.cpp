#include "apps/report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "apps/report/words.hpp"
#include "runtime/base/printable.hpp"

namespace troupe::report {
namespace {

// The size of the picture, in its own units; the page scales it.
constexpr double kWidth = 640;
constexpr double kHeight = 280;
constexpr double kLeft = 62;
constexpr double kRight = 18;
constexpr double kTop = 30;  // space for the label of the y axis
constexpr double kBottom = 44;
constexpr std::size_t kMostMarks = 60;

constexpr double kStepsOfTen[] = {1, 2, 5, 10};

/// The smallest of 1, 2, 5 times a power of ten that is at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double step : kStepsOfTen)
    if (step * power >= least * (1 - 1e-9)) return step * power;
  return 10 * power;
}

/// The position of a value between the ends of an axis, 0 to 1.
double place_on(const Axis& axis, double value) {
  if (axis.scale == Scale::logarithmic)
    return (std::log10(value) - std::log10(axis.low)) / (std::log10(axis.high) - std::log10(axis.low));
  return (value - axis.low) / (axis.high - axis.low);
}

double x_of(const Axis& axis, double value) { return kLeft + place_on(axis, value) * (kWidth - kLeft - kRight); }
double y_of(const Axis& axis, double value) {
  return kHeight - kBottom - place_on(axis, value) * (kHeight - kTop - kBottom);
}

std::string open_svg(const std::string& description) {
  return fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight,
                     escaped(description));
}

std::string frame(const Axis& x, const Axis& y, bool percent = false) {
  std::string out;
  const auto to = std::back_inserter(out);
  const double bottom = kHeight - kBottom;
  const std::vector<double> rows = ticks_of(y);
  const std::vector<std::string> row_texts = tick_texts(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double at = y_of(y, rows[i]);
    fmt::format_to(to, "<line class=\"grid\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                   kWidth - kRight, at, at);
    fmt::format_to(to, "<text class=\"tick\" text-anchor=\"end\" x=\"{:g}\" y=\"{:.1f}\">{}</text>\n", kLeft - 8,
                   at + 4, percent ? fmt::format("{:.0f} %", rows[i] * 100) : row_texts[i]);
  }
  const std::vector<double> columns = ticks_of(x, 8);
  const std::vector<std::string> column_texts = tick_texts(columns);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double at = x_of(x, columns[i]);
    fmt::format_to(to, "<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:g}\" y2=\"{:g}\"/>", at, at, bottom,
                   bottom + 5);
    fmt::format_to(to, "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:g}\">{}</text>\n", at,
                   bottom + 18, column_texts[i]);
  }
  fmt::format_to(to, "<line class=\"axis\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:g}\" y2=\"{:g}\"/>\n", kLeft, kWidth - kRight,
                 bottom, bottom);
  fmt::format_to(to, "<text class=\"label\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", 4.0, 16.0, escaped(y.label));
  fmt::format_to(to, "<text class=\"label\" text-anchor=\"end\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", kWidth - kRight,
                 kHeight - 6, escaped(x.label));
  return out;
}

std::string mark(const Curve& curve, const Axis& x, const Axis& y, const Dot& dot) {
  const double across = x_of(x, dot.x);
  const std::string title = dot.title.empty() ? "" : fmt::format("<title>{}</title>", escaped(dot.title));
  if (std::isfinite(dot.y))
    return fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\">{}</circle>\n", curve.style,
                       across, y_of(y, dot.y), title);
  return fmt::format("<path class=\"cross {0}\" d=\"M{1:.1f} {2:g}l8 8m0 -8l-8 8\">{3}</path>\n", curve.style,
                     across - 4, kTop - 4, title);
}

std::string curve_svg(const Curve& curve, const Axis& x, const Axis& y) {
  std::string path;
  std::string marks;
  const bool few = curve.marked && curve.dots.size() <= kMostMarks;
  bool pen_down = false;
  for (std::size_t i = 0; i < curve.dots.size(); ++i) {
    const Dot& dot = curve.dots[i];
    const bool there = std::isfinite(dot.y);
    const bool alone = there && !pen_down && (i + 1 == curve.dots.size() || !std::isfinite(curve.dots[i + 1].y));
    if (few || alone || !there) marks += mark(curve, x, y, dot);
    if (there) path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x_of(x, dot.x), y_of(y, dot.y));
    pen_down = there;
  }
  return fmt::format("<path class=\"curve {}{}\" d=\"{}\"/>\n{}", curve.style, curve.dashed ? " dashed" : "", path,
                     marks);
}

}  // namespace

Axis rounded_axis(std::string label, double low, double high, Scale scale) {
  Axis axis{std::move(label), low, high, scale};
  if (scale == Scale::logarithmic) {
    const auto down = [](double value) {
      const double power = std::pow(10, std::floor(std::log10(value)));
      double best = power;
      for (const double step : kStepsOfTen)
        if (step * power <= value * (1 + 1e-9)) best = step * power;
      return best;
    };
    axis.low = down(low);
    axis.high = round_step(high);
    if (axis.high <= axis.low) axis.high = axis.low * 10;
    return axis;
  }
  if (!(high > low)) {  // a single value: adds some space around it
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    axis.low = low == 0 ? 0 : low - room;
    axis.high = low + room;
  }
  const double step = round_step((axis.high - axis.low) / 5);
  axis.low = std::floor(axis.low / step + 1e-9) * step;
  axis.high = std::ceil(axis.high / step - 1e-9) * step;
  return axis;
}

std::vector<double> ticks_of(const Axis& axis, std::size_t most) {
  std::vector<double> ticks;
  if (axis.scale == Scale::logarithmic) {
    const auto first = static_cast<int>(std::floor(std::log10(axis.low) + 1e-9));
    const auto last = static_cast<int>(std::ceil(std::log10(axis.high) - 1e-9));
    for (const bool between : {true, false}) {
      const int stride = between ? 1 : std::max(1, (last - first) / static_cast<int>(most) + 1);
      ticks.clear();
      for (int power = first; power <= last; power += stride) {
        for (const double step : {1.0, 2.0, 5.0}) {
          const double value = step * std::pow(10, power);
          if ((between || step == 1) && value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9))
            ticks.push_back(value);
        }
      }
      if (ticks.size() <= most + 4) break;
    }
    return ticks;
  }
  double step = round_step((axis.high - axis.low) / static_cast<double>(most));
  if (axis.scale == Scale::whole) step = std::max(1.0, step);
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double i = first; i * step <= axis.high + step * 1e-9; ++i) ticks.push_back(i * step == 0 ? 0 : i * step);
  if (axis.scale == Scale::whole && step > 1 && (ticks.empty() || ticks.front() - axis.low >= 0.5 * step))
    ticks.insert(ticks.begin(), axis.low);
  return ticks;
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  double largest = 0;
  double gap = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    largest = std::max(largest, std::abs(ticks[i]));
    if (i > 0) gap = std::min(gap, std::abs(ticks[i] - ticks[i - 1]));
  }
  if (!std::isfinite(gap)) gap = largest;
  const bool even =
      ticks.size() < 2 || std::abs((ticks.back() - ticks.front()) / gap - static_cast<double>(ticks.size() - 1)) < 0.01;
  std::vector<std::string> texts;
  for (const double tick : ticks) {
    const bool scientific = largest >= 1e12 || (gap > 0 && gap < 1e-5);
    if (scientific || (!even && largest < 1e4)) {
      texts.push_back(fmt::format("{:.6g}", tick));
      continue;
    }
    const double unit = largest >= 2e9 ? 1e9 : largest >= 2e6 ? 1e6 : largest >= 1e4 ? 1e3 : 1;
    const char* letter = unit == 1e9 ? "G" : unit == 1e6 ? "M" : unit == 1e3 ? "k" : "";
    const double digits = gap > 0 ? std::ceil(-std::log10(gap / unit) - 1e-9) : 0;
    texts.push_back(
        tick == 0 ? "0"
                  : fmt::format("{:.{}f}{}", tick / unit, static_cast<int>(std::clamp(digits, 0.0, 6.0)), letter));
  }
  return texts;
}

std::vector<Dot> thinned(const std::vector<Dot>& dots, std::size_t most) {
  if (dots.size() <= most || most < 2) return dots;
  const std::size_t each = (2 * dots.size() + most - 1) / most;  // number of neighbours of which two are kept
  std::vector<Dot> left;
  for (std::size_t begin = 0; begin < dots.size(); begin += each) {
    const std::size_t end = std::min(begin + each, dots.size());
    std::vector<std::size_t> kept;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(dots[i].y)) {
        kept.push_back(i);
        break;
      }
    }
    std::size_t lowest = end, highest = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(dots[i].y)) continue;
      if (lowest == end || dots[i].y < dots[lowest].y) lowest = i;
      if (highest == end || dots[i].y > dots[highest].y) highest = i;
    }
    for (const std::size_t i : {lowest, highest})
      if (i != end) kept.push_back(i);
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const std::size_t i : kept) left.push_back(dots[i]);
  }
  return left;
}

std::string line_chart(const std::string& description, const Axis& x, const Axis& y, const std::vector<Curve>& curves) {
  std::string out = open_svg(description) + frame(x, y);
  for (const Curve& curve : curves) out += curve_svg(curve, x, y);
  return out + "</svg>\n";
}

std::string share_chart(const std::string& description, const Axis& x, const std::vector<double>& edges,
                        const std::vector<Layer>& layers) {
  const Axis y{"share of rank 0's time", 0, 1, Scale::linear};
  std::string out = open_svg(description);
  std::vector<double> below(edges.empty() ? 0 : edges.size() - 1, 0);
  for (const Layer& layer : layers) {
    std::string upper;
    std::string lower;
    for (std::size_t i = 0; i < below.size(); ++i) {
      const double top = std::min(1.0, below[i] + layer.shares[i]);
      const double left = x_of(x, edges[i]);
      const double right = x_of(x, edges[i + 1]);
      upper += fmt::format("{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L", left, y_of(y, top), right);
      lower.insert(0, fmt::format("L{:.1f} {:.1f}H{:.1f}", right, y_of(y, below[i]), left));
      below[i] = top;
    }
    out += fmt::format("<path class=\"area {}\" d=\"{}{}Z\"><title>{}</title></path>\n", layer.style, upper, lower,
                       escaped(layer.name));
  }
  return out + frame(x, y, true) + "</svg>\n";
}

std::string share_bar(const std::string& description, const std::vector<Layer>& layers) {
  constexpr double kBarHeight = 26;
  std::string out = fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 1000 {:g}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\n",
      kBarHeight, escaped(description));
  double at = 0;
  for (const Layer& layer : layers) {
    const double share = layer.shares.empty() ? 0 : layer.shares.front();
    out += fmt::format(
        "<rect class=\"area {}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"{:g}\"><title>{}</title></rect>\n",
        layer.style, at * 1000, share * 1000, kBarHeight,
        escaped(fmt::format("{}: {:.1f} %", layer.name, share * 100)));
    at += share;
  }
  return out + "</svg>\n";
}

std::string legend_line(const Curve& curve) {
  return fmt::format(
      "<svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><path class=\"curve {}{}\" d=\"M1 6H27\"/></svg>",
      curve.style, curve.dashed ? " dashed" : "");
}

std::string legend_box(const std::string& style) {
  return fmt::format(
      "<svg class=\"key box\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"area {}\" width=\"12\" "
      "height=\"12\"/></svg>",
      style);
}

}  // namespace troupe::report
