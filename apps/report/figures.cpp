#include "apps/report/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "apps/report/chart.hpp"
#include "apps/report/words.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"

namespace troupe::report {
namespace {

constexpr std::size_t kMostDots = 400;
constexpr std::size_t kMostRates = 160;  // over time; more would only show noise
constexpr std::size_t kMostShares = 80;
/// Curves with a larger ratio of values are drawn on a logarithmic axis.
constexpr double kWideSpan = 30;

using Value = std::optional<double> (*)(const EpochReport&);

Curve curve_of(const RunRecord& record, std::string name, std::string style, Value value) {
  Curve curve{.name = std::move(name), .style = std::move(style)};
  for (const EpochReport& epoch : record.epochs) {
    const std::optional<double> y = value(epoch);
    if (!y) continue;
    curve.dots.push_back(
        {static_cast<double>(epoch.epoch), *y, fmt::format("epoch {}: {} {:.6g}", epoch.epoch, curve.name, *y)});
  }
  curve.dots = thinned(curve.dots, kMostDots);
  return curve;
}

struct Ends {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool any() const { return low <= high; }
};

Ends ends_of(const std::vector<Curve>& curves) {
  Ends ends;
  for (const Curve& curve : curves) {
    for (const Dot& dot : curve.dots) {
      if (!std::isfinite(dot.y)) continue;
      ends.low = std::min(ends.low, dot.y);
      ends.high = std::max(ends.high, dot.y);
    }
  }
  return ends;
}

Axis epoch_axis(const RunRecord& record) {
  const double first = record.epochs.front().epoch;
  const double last = record.epochs.back().epoch;
  if (last > first) return {"epoch", first, last, Scale::whole};
  return {"epoch", first - 0.5, first + 0.5, Scale::whole};
}

std::string legend(const std::vector<Curve>& curves) {
  std::string out = "<ul class=\"legend\">";
  for (const Curve& curve : curves)
    out +=
        fmt::format("<li>{}{}, last <b>{:.4g}</b></li>", legend_line(curve), escaped(curve.name), curve.dots.back().y);
  return out + "</ul>\n";
}

std::string figure(const std::string& title, const std::string& key, const std::string& picture,
                   const std::string& remark) {
  return fmt::format("<figure>\n<figcaption><h2>{}</h2>{}</figcaption>\n{}{}</figure>\n", title, key, picture,
                     remark.empty() ? "" : fmt::format("<p class=\"remark\">{}</p>\n", remark));
}

/// Remarks that a reader of a curve over epochs should know.
std::string remarks(const RunRecord& record, const Axis& y) {
  std::string out;
  if (y.scale == Scale::logarithmic)
    out += "The scale is logarithmic. ";
  else if (y.low > 0)
    out += fmt::format("The scale begins at {:g}, not at 0. ", y.low);
  if (record.epochs.size() > kMostDots)
    out += "There are more epochs than dots: of neighbours the lowest and the highest are drawn. ";
  return out;
}

/// False if add_epoch() has left some out.
bool all_are_there(const RunRecord& record) {
  return record.epochs.back().epoch - record.epochs.front().epoch < record.epochs.size();
}

std::string loss_trouble(const RunRecord& record) {
  const auto wild = std::find_if(record.epochs.begin(), record.epochs.end(),
                                 [](const EpochReport& e) { return e.counted && !std::isfinite(e.loss); });
  if (wild == record.epochs.end()) return {};
  const auto count = std::count_if(record.epochs.begin(), record.epochs.end(),
                                   [](const EpochReport& e) { return e.counted && !std::isfinite(e.loss); });
  return fmt::format(
      "<strong>The training loss of {}{} epoch{} is not a finite number (crosses), first in epoch {}.</strong> "
      "Lower optimizer.rate, or look for such numbers in the data. ",
      all_are_there(record) ? "" : "at least ", count, count == 1 ? "" : "s", wild->epoch);
}

/// Curves over epochs; those without a dot are left out.
std::string epoch_figure(const RunRecord& record, const std::string& what, std::vector<Curve> curves,
                         const std::string& trouble, bool from_zero) {
  std::erase_if(curves, [](const Curve& curve) { return curve.dots.empty(); });
  if (curves.empty()) return {};
  const Ends ends = ends_of(curves);
  Axis y{what, 0, 1};
  if (ends.any()) {
    const bool wide = from_zero && ends.low > 0 && ends.high > kWideSpan * ends.low;
    if (wide)
      y = rounded_axis(what, ends.low, ends.high, Scale::logarithmic);
    else
      y = rounded_axis(what, from_zero ? std::min(0.0, ends.low) : ends.low, ends.high);
  }
  std::string title = what;
  title[0] = static_cast<char>(title[0] - 'a' + 'A');
  return figure(title, legend(curves), line_chart(what + " by epoch", epoch_axis(record), y, curves),
                trouble + remarks(record, y));
}

/// Seconds, minutes or hours, whichever suits.
struct TimeUnit {
  double seconds;
  const char* name;
};
TimeUnit unit_for(double span_s) {
  if (span_s < 180) return {1, "seconds"};
  if (span_s < 3 * 3600) return {60, "minutes"};
  return {3600, "hours"};
}

/// At most about `most` intervals of a trace: every k-th point, and the last.
std::vector<TracePoint> coarse(const RunTrace& trace, std::size_t most) {
  const std::vector<TracePoint>& points = trace.points();
  const std::size_t each = (points.size() + most - 1) / most;
  std::vector<TracePoint> kept;
  for (std::size_t i = 0; i < points.size(); i += each) kept.push_back(points[i]);
  if ((points.size() - 1) % each != 0) kept.push_back(points.back());
  return kept;
}

Axis time_axis(const RunTrace& trace, const TimeUnit& unit) {
  return {fmt::format("{} since the first step", unit.name), 0, trace.points().back().elapsed_s / unit.seconds};
}

struct Kind {
  const char* name;
  const char* style;
  const char* meaning;
  StreamTimes::Span StreamTimes::*span;
};
constexpr std::array<Kind, 7> kKinds{{
    {"compute", "compute", "forward and backward", &StreamTimes::compute},
    {"update", "update", "the optimizer's pass over this rank's part", &StreamTimes::update},
    {"exchange", "exchange", "waiting for other ranks, and telling them", &StreamTimes::exchange},
    {"load", "load", "waiting for a training batch", &StreamTimes::load},
    {"evaluate", "evaluate", "the test set, waiting for its batches included", &StreamTimes::evaluate},
    {"copy", "copy", "copies of weights, and for checkpoints", &StreamTimes::copy},
    {"idle", "idle", "nothing to do, and no batch came next", &StreamTimes::idle},
}};

double seconds_of(StreamTimes::Span span) { return std::chrono::duration<double>(span).count(); }

/// The fractions of those kinds that occur, over the intervals between the trace's points; intervals without a
/// measurement are joined with their neighbours.
std::pair<std::vector<double>, std::vector<Layer>> shares_over_time(const RunTrace& trace, const StreamTimes& all,
                                                                    const TimeUnit& unit) {
  std::vector<double> edges{0};
  std::vector<StreamTimes> spans;
  const std::vector<TracePoint> points = coarse(trace, kMostShares);
  const TracePoint* from = &points.front();
  for (const TracePoint& to : points) {
    const StreamTimes span = to.times - from->times;
    if (span.total().count() <= 0) continue;
    edges.push_back(to.elapsed_s / unit.seconds);
    spans.push_back(span);
    from = &to;
  }
  std::vector<Layer> layers;
  for (const Kind& kind : kKinds) {
    if ((all.*kind.span).count() <= 0) continue;
    Layer layer{kind.name, kind.style, {}};
    for (const StreamTimes& span : spans)
      layer.shares.push_back(seconds_of(span.*kind.span) / seconds_of(span.total()));
    layers.push_back(std::move(layer));
  }
  return {std::move(edges), std::move(layers)};
}

std::string share_text(double share) {
  if (share <= 0) return "0 %";
  return share < 0.0005 ? "under 0.1 %" : fmt::format("{:.1f} %", share * 100);
}

std::string split_table(const StreamTimes& all, double steps) {
  const double total = seconds_of(all.total());
  std::string out =
      "<table class=\"numbers\"><thead><tr><th>kind</th><th>what</th><th>time</th><th>share</th><th>a "
      "step</th></tr></thead><tbody>\n";
  for (const Kind& kind : kKinds) {
    const double spent = seconds_of(all.*kind.span);
    const bool of_steps = kind.span != &StreamTimes::evaluate && kind.span != &StreamTimes::copy;
    if (spent <= 0 && !of_steps) continue;  // a line even if it is zero: it says that no step waited for its batch
    out += fmt::format("<tr><th>{}{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", legend_box(kind.style),
                       kind.name, kind.meaning, span_text(spent), share_text(spent / total),
                       of_steps && steps > 0 ? fmt::format("{:.3f} ms", spent / steps * 1e3) : "");
  }
  return out + fmt::format(
                   "<tr class=\"total\"><th>all</th><td></td><td>{}</td><td>100 %</td><td></td></tr></tbody></table>\n",
                   span_text(total));
}

}  // namespace

std::string loss_figure(const RunRecord& record) {
  if (record.epochs.empty()) return {};
  std::vector<Curve> curves{curve_of(record, "training", "train", [](const EpochReport& e) { return e.known_loss(); }),
                            curve_of(record, "test", "test", [](const EpochReport& e) { return e.test_loss; })};
  curves[1].dashed = true;
  return epoch_figure(record, "loss", std::move(curves), loss_trouble(record), true);
}

std::string accuracy_figure(const RunRecord& record) {
  if (record.epochs.empty()) return {};
  std::vector<Curve> curves{
      curve_of(record, "training", "train", [](const EpochReport& e) { return e.known_accuracy(); }),
      curve_of(record, "test", "test", [](const EpochReport& e) { return e.test_accuracy; })};
  curves[1].dashed = true;
  return epoch_figure(record, "accuracy", std::move(curves), {}, false);
}

std::string rate_figure(const RunRecord& record) {
  const auto differs = [&](const EpochReport& e) { return e.rate != record.epochs.front().rate; };
  if (std::none_of(record.epochs.begin(), record.epochs.end(), differs)) return {};
  std::vector<Curve> curves{curve_of(record, "learning rate", "train", [](const EpochReport& e) { return e.rate; })};
  return epoch_figure(record, "learning rate", std::move(curves), {}, true);
}

std::string loss_scale_figure(const RunRecord& record) {
  const auto scales = [](const EpochReport& e) { return e.loss_scale > 0; };
  if (std::none_of(record.epochs.begin(), record.epochs.end(), scales)) return {};
  std::vector<Curve> curves{
      curve_of(record, "loss scale", "train", [](const EpochReport& e) { return std::optional{e.loss_scale}; })};
  return epoch_figure(record, "loss scale", std::move(curves), {}, true);
}

std::string throughput_figure(const RunRecord& record) {
  const std::vector<TracePoint> points = coarse(record.trace, kMostRates);
  if (points.size() < 2) return {};
  const TimeUnit unit = unit_for(points.back().elapsed_s);
  Curve curve{.name = "all ranks", .style = "train", .marked = false};
  double highest = 0;
  const TracePoint* from = &points.front();
  for (const TracePoint& to : points) {
    if (to.train_s <= from->train_s || to.samples <= from->samples) continue;  // only an evaluation, or the beginning
    const double rate = static_cast<double>(to.samples - from->samples) / (to.train_s - from->train_s);
    curve.dots.push_back({from->elapsed_s / unit.seconds, rate, {}});
    curve.dots.push_back({to.elapsed_s / unit.seconds, rate, {}});
    highest = std::max(highest, rate);
    from = &to;
  }
  if (curve.dots.empty()) return {};
  const double mean = static_cast<double>(from->samples) / from->train_s;
  const std::string key = fmt::format("<ul class=\"legend\"><li>{}all ranks together, mean <b>{}</b></li></ul>\n",
                                      legend_line(curve), grouped(static_cast<std::uint64_t>(std::llround(mean))));
  return figure("Samples per second", key,
                line_chart("samples per second over time", time_axis(record.trace, unit),
                           rounded_axis("samples/s", 0, highest), {curve}),
                "Time that went to evaluation is not counted.");
}

std::string shares_figure(const RunRecord& record) {
  const TracePoint& end = record.trace.points().back();
  if (end.times.total().count() <= 0) return {};
  const TimeUnit unit = unit_for(end.elapsed_s);
  const auto [edges, layers] = shares_over_time(record.trace, end.times, unit);
  std::string key = "<ul class=\"legend\">";
  for (const Layer& layer : layers) key += fmt::format("<li>{}{}</li>", legend_box(layer.style), layer.name);
  return figure("Rank 0's time", key + "</ul>\n",
                share_chart("shares of rank 0's time over time", time_axis(record.trace, unit), edges, layers), {});
}

std::string split_section(const RunRecord& record) {
  const TracePoint& end = record.trace.points().back();
  const StreamTimes& all = end.times;
  if (all.total().count() <= 0) return {};
  std::vector<Layer> whole;
  for (const Kind& kind : kKinds) {
    const double share = seconds_of(all.*kind.span) / seconds_of(all.total());
    if (share <= 0) continue;
    whole.push_back({kind.name, kind.style, {share}});
  }
  const bool one_size = record.plan && record.plan->batches.empty();  // all batches have one size
  const double rows = one_size ? static_cast<double>(record.plan->batch) * record.plan->world_size() : 0;
  const double steps = rows > 0 ? static_cast<double>(end.samples) / rows : 0;
  return fmt::format(
      "<section class=\"split\"><h2>Where rank 0's time went</h2>\n{}<div class=\"scroll\">{}</div>"
      "<p class=\"remark\">As its device's thread saw it, from the first step on.</p></section>\n",
      share_bar("shares of rank 0's time in the whole run", whole), split_table(all, steps));
}

}  // namespace troupe::report
