#include "apps/report/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "apps/report/chart.hpp"
#include "apps/report/words.hpp"
#include "runtime/base/detail/json.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/printable.hpp"

namespace troupe::report {
namespace {

using json = nlohmann::ordered_json;  // as in run_summary.cpp: one kind is compiled

struct Colour {
  std::string_view phase;
  std::string_view colour;
};
/// Work in full colours, waits and bookkeeping in grey.
constexpr std::array<Colour, 14> kColours{{{"forward", "#4e79a7"},
                                           {"backward", "#2f4b7c"},
                                           {"evaluate", "#76b7b2"},
                                           {"reduce", "#9c755f"},
                                           {"reduce with norm", "#b07aa1"},
                                           {"update", "#59a14f"},
                                           {"copy", "#bab0ac"},
                                           {"convert", "#d37295"},
                                           {"send gradients", "#f28e2b"},
                                           {"send parameters", "#e15759"},
                                           {"wait", "#dddddd"},
                                           {"enqueue step", "#edc948"},
                                           {"fill batch", "#8cd17d"},
                                           {"move", "#c7b299"}}};
constexpr std::string_view kOtherColour = "#9aa5b1";

std::string_view colour_of(const std::string& phase) noexcept {
  const auto found = std::find_if(kColours.begin(), kColours.end(), [&](const Colour& c) { return c.phase == phase; });
  return found == kColours.end() ? kOtherColour : found->colour;
}

constexpr double kLabelWidth = 210;
constexpr double kPictureWidth = 1100;
constexpr double kRightEdge = 20;
constexpr double kFirstRow = 56;
constexpr double kRowHeight = 20;
constexpr double kProcessHeight = 24;
constexpr double kBelowRows = 84;

struct Window {
  double begin = 0, end = 0;  // microseconds
  double x(double at) const noexcept {
    return kLabelWidth +
           std::clamp((at - begin) / (end - begin), 0.0, 1.0) * (kPictureWidth - kLabelWidth - kRightEdge);
  }
};

/// Whether it is work for a step that is done long before the step begins.
bool is_ahead(const TimelineSpan& span) noexcept { return span.phase == "fill batch" || span.phase == "enqueue step"; }

std::optional<Window> window_of(const std::vector<TimelineRow>& rows, std::uint64_t step) {
  std::optional<Window> window;
  for (const TimelineRow& row : rows) {
    for (const TimelineSpan& span : row.spans) {
      if (span.step != step || is_ahead(span)) continue;
      if (!window) window = Window{span.begin_us, span.end_us};
      window->begin = std::min(window->begin, span.begin_us);
      window->end = std::max(window->end, span.end_us);
    }
  }
  if (window && window->end <= window->begin) window->end = window->begin + 1;
  return window;
}

bool touches(const TimelineSpan& span, const Window& window) noexcept {
  return span.end_us > window.begin && span.begin_us < window.end;
}

/// Spans of one row and colour that are drawn as one, since they could not be distinguished.
struct Drawn {
  const TimelineSpan* first = nullptr;
  bool pale = false;
  double begin = 0, end = 0;  // positions in the picture
  double work_us = 0;
  std::size_t count = 0;
};

constexpr double kApart = 0.5;

std::vector<Drawn> gathered(const TimelineRow& row, const Window& window, std::uint64_t step) {
  std::vector<Drawn> all;
  for (const TimelineSpan& span : row.spans) {
    if (!touches(span, window)) continue;
    const bool pale = span.step && span.step != step;
    const double begin = window.x(span.begin_us), end = std::max(begin + 0.4, window.x(span.end_us));
    const bool more = !all.empty() && all.back().first->phase == span.phase && all.back().pale == pale &&
                      begin - all.back().end < kApart && (all.back().count > 1 || end - begin < 2 * kApart);
    if (!more) all.push_back({&span, pale, begin, end});
    all.back().end = end;
    all.back().work_us += span.end_us - span.begin_us;
    ++all.back().count;
  }
  return all;
}

std::string draw_spans(const Drawn& drawn, double top) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:g}\" width=\"{:.1f}\" height=\"{:g}\" fill=\"{}\"{}><title>{}{}: {:.3f} "
      "ms</title></rect>\n",
      drawn.begin, top + 3, drawn.end - drawn.begin, kRowHeight - 6, colour_of(drawn.first->phase),
      drawn.pale ? " fill-opacity=\"0.4\"" : "", escaped(drawn.first->name),
      drawn.count == 1 ? "" : fmt::format(" and {} more", drawn.count - 1), drawn.work_us / 1e3);
}

std::string time_axis(const Window& window, double bottom) {
  const Axis x{"ms", 0, (window.end - window.begin) / 1e3, Scale::linear};
  const std::vector<double> ticks = ticks_of(x, 10);
  const std::vector<std::string> texts = tick_texts(ticks);
  std::string out;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const double at = window.x(window.begin + ticks[i] * 1e3);
    out += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\" stroke=\"#e4e7eb\"/>", at,
                       kFirstRow - 8, bottom);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:g}\" text-anchor=\"middle\">{}{}</text>\n", at, bottom + 16, texts[i],
                       i + 1 == ticks.size() ? " ms" : "");
  }
  return out;
}

std::string phase_legend(const std::set<std::string>& phases, double top) {
  std::string out;
  double x = kLabelWidth;
  for (const std::string& phase : phases) {
    const double width = 30 + 7 * static_cast<double>(phase.size());
    if (x + width > kPictureWidth) {
      x = kLabelWidth;
      top += 18;
    }
    out +=
        fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"11\" height=\"11\" fill=\"{}\"/>", x, top, colour_of(phase));
    out += fmt::format("<text x=\"{:g}\" y=\"{:g}\">{}</text>\n", x + 16, top + 10, escaped(phase));
    x += width;
  }
  return out;
}

}  // namespace

std::vector<TimelineRow> read_timeline(const std::filesystem::path& file) {
  refuse_special_file(file.string());
  std::ifstream in{file};
  TROUPE_CHECK_ERRNO(in.good(), Code::invalid, "cannot read the trace ", file.string(),
                     ", which `rtrun --trace` writes");
  const json events = json_from(std::string{std::istreambuf_iterator<char>{in}, {}});
  TROUPE_CHECK(!events.is_discarded(), Code::corrupt, file.string(), " is not a trace: no JSON, or not all of it");
  std::map<std::uint64_t, std::string> processes;
  std::map<std::pair<std::uint64_t, std::uint64_t>, TimelineRow> rows;
  std::size_t place = 0;
  try {
    for (const json& event : events) {
      ++place;
      const std::string kind = event.at("name"), sort = event.at("ph");
      const auto pid = event.at("pid").get<std::uint64_t>();
      if (kind == "process_name") processes[pid] = event.at("args").at("name");
      if (!event.contains("tid")) continue;
      TimelineRow& row = rows[{pid, event.at("tid")}];
      if (kind == "thread_name") row.name = event.at("args").at("name");
      if (sort != "X") continue;
      const double begin = event.at("ts");
      TimelineSpan& span = row.spans.emplace_back(TimelineSpan{.name = kind});
      span.phase = event.at("args").value("phase", kind);
      if (event.at("args").contains("step")) span.step = event.at("args").at("step").get<std::uint64_t>();
      span.begin_us = begin;
      span.end_us = begin + event.at("dur").get<double>();
    }
  } catch (const json::exception& error) {
    fail(Code::corrupt, text(file.string(), ", event ", place, ": ", error.what()));
  }
  std::vector<TimelineRow> all;
  for (auto& [key, row] : rows) {
    row.process = processes[key.first];
    all.push_back(std::move(row));
  }
  return all;
}

std::optional<std::uint64_t> middle_step(const std::vector<TimelineRow>& rows) {
  std::set<std::uint64_t> steps;
  for (const TimelineRow& row : rows)
    for (const TimelineSpan& span : row.spans)
      if (span.step) steps.insert(*span.step);
  if (steps.empty()) return std::nullopt;
  return *std::next(steps.begin(), static_cast<std::ptrdiff_t>(steps.size() / 2));
}

std::string step_timeline(const std::vector<TimelineRow>& rows, std::uint64_t step) {
  const std::optional<Window> window = window_of(rows, step);
  if (!window) {
    std::set<std::uint64_t> steps;
    for (const TimelineRow& row : rows)
      for (const TimelineSpan& span : row.spans)
        if (span.step) steps.insert(*span.step);
    fail(Code::invalid, steps.empty() ? std::string{"the trace has no steps"}
                                      : text("the trace has nothing of step ", step, "; it has steps ", *steps.begin(),
                                             " to ", *steps.rbegin()));
  }
  std::string body;
  std::set<std::string> phases;
  double y = kFirstRow;
  std::string process;
  for (const TimelineRow& row : rows) {
    std::string drawn;
    for (const Drawn& some : gathered(row, *window, step)) {
      drawn += draw_spans(some, row.process == process ? y : y + kProcessHeight);
      phases.insert(some.first->phase);
    }
    if (drawn.empty()) continue;
    if (row.process != process) {
      body += fmt::format("<text class=\"process\" x=\"8\" y=\"{:g}\">{}</text>\n", y + 17, escaped(row.process));
      y += kProcessHeight;
      process = row.process;
    }
    body += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n", kLabelWidth - 8, y + 14,
                        escaped(row.name));
    body += drawn;
    y += kRowHeight;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
             "role=\"img\" aria-label=\"Trace of step {2}\" font-family=\"sans-serif\" font-size=\"12\" "
             "fill=\"#323f4b\">\n<style>.process {{ font-weight: bold }} .title {{ font-size: 15px }}</style>\n"
             "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#ffffff\"/>\n",
             kPictureWidth, y + kBelowRows, step) +
         fmt::format("<text class=\"title\" x=\"8\" y=\"22\">Step {}: {:.2f} ms; work of other steps is paler</text>\n",
                     step, (window->end - window->begin) / 1e3) +
         time_axis(*window, y) + body + phase_legend(phases, y + 34) + "</svg>\n";
}

}  // namespace troupe::report
