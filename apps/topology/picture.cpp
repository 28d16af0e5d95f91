#include "apps/topology/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/topology/detail/svg.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/paths.hpp"

// First every box is measured from the inside out, then placed from the outside in, then drawn in three layers: frames,
// links, cards. So links are above frames and below cards.
namespace troupe::topology {
namespace {

using Kind = Entry::Kind;
using detail::kLetter;

constexpr double kGap = 10;
constexpr double kCardWidth = 214;
constexpr double kHeader = 36;
constexpr double kLine = 13;
constexpr double kCore = 11;
constexpr double kMargin = 20;
constexpr double kTop = 66;
constexpr std::size_t kCoresInRow = 16;

/// Breaks text at spaces into lines that fit into a frame of this width.
std::vector<std::string> wrapped(const std::string& words, double width) {
  const auto most = static_cast<std::size_t>(std::max((width - 2 * kGap) / kLetter, 4.0));
  std::vector<std::string> lines;
  for (std::string_view left = words; !left.empty();) {
    std::size_t end = left.size() <= most ? left.size() : left.rfind(' ', most);
    if (end == std::string_view::npos || end == 0) end = std::min(most, left.size());
    lines.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(left.find_first_not_of(' ', end), left.size()));
  }
  return lines;
}

bool is_frame(const Entry& entry) {
  return !entry.below.empty() &&
         (entry.kind == Kind::machine || entry.kind == Kind::package || entry.kind == Kind::group ||
          entry.kind == Kind::cache || entry.kind == Kind::host_bridge || entry.kind == Kind::pci_switch);
}

/// A card's details in lines that are as full as possible; the rest is in the tooltip.
std::vector<std::string> lines_of(const Entry& entry) {
  const std::size_t most = entry.kind == Kind::gpu ? 4 : entry.kind == Kind::nic ? 3 : entry.kind == Kind::disk ? 2 : 1;
  const auto letters = static_cast<std::size_t>((kCardWidth - 12) / kLetter);
  std::vector<std::string> lines;
  for (const std::string& detail : entry.details) {
    if (!lines.empty() && lines.back().size() + 2 + detail.size() <= letters) {
      lines.back() += ", " + detail;
    } else if (lines.size() < most) {
      lines.push_back(detail);
    }
  }
  return lines;
}

bool is_device(Kind kind) {
  return kind != Kind::memory && kind != Kind::cache && kind != Kind::cores && kind != Kind::group &&
         kind != Kind::package;
}

const char* style_of(const Entry& entry) {
  switch (entry.kind) {
    case Kind::package: return "package";
    case Kind::memory: return "memory";
    case Kind::pci_switch: return "switch";
    case Kind::host_bridge: return "host";
    case Kind::gpu: return "gpu";
    case Kind::nic: return "nic";
    case Kind::cache: return "cache";
    default: return "other";
  }
}

struct Box {
  const Entry* entry = nullptr;
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  std::vector<Box> inside;
};

double row_width(Kind kind) {
  switch (kind) {
    case Kind::machine: return 1340;
    case Kind::package: return 640;
    case Kind::pci_switch: return 2 * kCardWidth + kGap;
    default: return 600;
  }
}

/// Arranges boxes in rows, large ones first in their given order.
void flow(Box& box, double most, double header) {
  double x = kGap;
  double y = header;
  double row = 0;
  double widest = 0;
  bool devices = false;  // they begin a new row
  for (Box& each : box.inside) {
    const bool first_device = x > kGap && is_device(each.entry->kind) && !devices;
    devices = devices || is_device(each.entry->kind);
    if (first_device || (x > kGap && x + each.width > most + kGap)) {
      x = kGap;
      y += row + kGap;
      row = 0;
    }
    each.x = x;
    each.y = y;
    x += each.width + kGap;
    row = std::max(row, each.height);
    widest = std::max(widest, x);
  }
  box.width = std::max(box.width, widest);
  box.height = y + row + kGap;
}

Box measured(const Entry& entry) {
  // A host bridge with a single thing behind it shows nothing that the thing does not show.
  if (entry.kind == Kind::host_bridge && entry.below.size() == 1) return measured(entry.below.front());
  Box box{.entry = &entry};
  if (is_frame(entry)) {
    for (const Entry& below : entry.below) box.inside.push_back(measured(below));
    box.width = entry.kind == Kind::cache ? 74 : kCardWidth;
    const double header = entry.kind == Kind::machine ? 0 : entry.kind == Kind::cache ? 22 : kHeader;
    flow(box, row_width(entry.kind), header);
    const auto troubles = static_cast<double>(wrapped(joined(entry.troubles), box.width).size());
    if (troubles > 0) flow(box, row_width(entry.kind), header + kLine * troubles);
  } else if (entry.kind == Kind::cores) {
    const std::size_t columns = std::min<std::size_t>(std::max<std::uint32_t>(entry.cores, 1), kCoresInRow);
    const std::size_t rows = (std::max<std::size_t>(entry.cores, 1) + columns - 1) / columns;
    box.width = std::max(static_cast<double>(columns) * (kCore + 3), entry.cores > 2 ? 104.0 : 40.0);
    box.height = static_cast<double>(rows) * (kCore + 3) + (entry.cores > 2 ? 16 : 0);
  } else {
    box.width = kCardWidth;
    box.height =
        26 + 14 * static_cast<double>(lines_of(entry).size() + std::min<std::size_t>(entry.troubles.size(), 1));
  }
  return box;
}

void place(Box& box, double x, double y) {
  box.x += x;
  box.y += y;
  for (Box& each : box.inside) place(each, box.x, box.y);
}

class Drawing {
 public:
  explicit Drawing(const Index& index) : index_(index) {}

  void frames(const Box& box) {
    if (!is_frame(*box.entry)) return;
    if (box.entry->kind != Kind::machine) frame(box);
    for (const Box& each : box.inside) frames(each);
  }

  void cards(const Box& box) {
    if (is_frame(*box.entry)) {
      for (const Box& each : box.inside) cards(each);
    } else if (box.entry->kind == Kind::cores) {
      cores(box);
    } else {
      card(box);
    }
  }

  /// Draws links directly between GPUs, and to a bar of switches at `bottom`. Returns the lower end of the picture.
  double links(double bottom, double width) {
    std::map<std::string, std::size_t> switches;
    const AcceleratorLink* const all_alike = link_of_all_pairs();
    if (all_alike != nullptr) return all_pairs(*all_alike, bottom, width);
    for (const AcceleratorLink& link : index_.links()) {
      const PartIndex to = index_.at_bus(link.to);
      if (to != kNoPart && places_.contains(to)) {
        if (link.from < to && places_.contains(link.from)) curve(link, places_.at(link.from), places_.at(to));
      } else if (!link.to.empty()) {
        ++switches[link.to];
      }
    }
    if (switches.empty() || places_.empty()) return bottom;
    const bool nvidia = std::any_of(index_.links().begin(), index_.links().end(),
                                    [](const auto& l) { return l.to_class == kNvSwitchClass; });
    for (const auto& [part, box] : places_) {
      double rate = 0;
      std::uint32_t lanes = 0;
      for (const AcceleratorLink& link : index_.links()) {
        if (link.from != part || (index_.at_bus(link.to) != kNoPart && places_.contains(index_.at_bus(link.to))))
          continue;
        rate += static_cast<double>(link.bytes_per_second);
        lanes += link.lanes - link.lanes_down;
      }
      if (lanes == 0 && rate == 0) continue;
      drop(*box, bottom, lanes > 0 ? text(lanes, " lanes") : rate_text(rate));
    }
    fabric(bottom, width, text(switches.size(), nvidia ? " NVLink switches join all GPUs" : " other ends of links"));
    return bottom + 40;
  }

  /// One of the links, if each of more than three GPUs has the same number of lanes to every other one: then a line for
  /// each pair would be confusing.
  const AcceleratorLink* link_of_all_pairs() const {
    std::size_t pairs = 0;
    const AcceleratorLink* one = nullptr;
    for (const AcceleratorLink& link : index_.links()) {
      const PartIndex to = index_.at_bus(link.to);
      if (to == kNoPart || !places_.contains(to) || !places_.contains(link.from)) return nullptr;
      if (one != nullptr && (one->lanes != link.lanes || link.lanes_down > 0 || one->kind != link.kind)) return nullptr;
      one = &link;
      ++pairs;
    }
    return places_.size() > 3 && pairs == places_.size() * (places_.size() - 1) ? one : nullptr;
  }

  double all_pairs(const AcceleratorLink& link, double bottom, double width) {
    for (const auto& [part, box] : places_)
      drop(*box, bottom, text(link.lanes, ' ', name_of(link.kind), " lanes to each other GPU"));
    fabric(bottom, width,
           text(name_of(link.kind), " joins each GPU with each other one, ", link.lanes,
                link.lanes == 1 ? " lane" : " lanes", " a pair"));
    return bottom + 40;
  }

  void drop(const Box& box, double bottom, const std::string& about) {
    const double x = box.x + box.width / 2;
    out_ += fmt::format(
        "<path class=\"link\" d=\"M{:.0f} {:.0f}V{:.0f}\" stroke-width=\"3\"><title>{}: {}</title></path>\n", x,
        box.y + box.height, bottom, escaped(box.entry->title), escaped(about));
  }

  void fabric(double y, double width, const std::string& words) {
    out_ += fmt::format(
        "<g><rect class=\"fabric\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"30\" rx=\"6\"/><text "
        "class=\"name\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text></g>\n",
        kMargin + kGap, y, width - 2 * kGap, kMargin + 2 * kGap, y + 20, escaped(words));
  }

  void remember(const Box& box) {
    if (box.entry->kind == Kind::gpu) places_.emplace(box.entry->part, &box);
    for (const Box& each : box.inside) remember(each);
  }

  void legend(double y) {
    double x = kMargin + kGap;
    for (const auto& [style, name] : {std::pair{"gpu", "GPU"},
                                      {"nic", "NIC"},
                                      {"memory", "memory"},
                                      {"core", "core"},
                                      {"switch", "PCI switch"},
                                      {"link", "NVLink, xGMI"},
                                      {"other bad", "trouble"}}) {
      const bool line = std::string_view{style} == "link";
      if (line)
        out_ += fmt::format("<path class=\"link\" d=\"M{:.0f} {:.0f}h14\" stroke-width=\"4\"/>", x, y + 6);
      else
        out_ += fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"14\" height=\"12\" rx=\"2\"/>", style,
                            x, y);
      out_ += fmt::format("<text class=\"small\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", x + 20, y + 10, name);
      x += 34 + kLetter * static_cast<double>(std::string_view{name}.size());
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string about(const Entry& entry) {
    std::string out = escaped(entry.title);
    for (const std::string& detail : entry.details) out += "&#10;" + escaped(detail);
    for (const std::string& trouble : entry.troubles) out += "&#10;! " + escaped(trouble);
    return out;
  }

  void rect(const Box& box, const char* style, double radius) {
    out_ +=
        fmt::format("<rect class=\"{}{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"{:g}\"/>",
                    style, box.entry->troubles.empty() ? "" : " bad", box.x, box.y, box.width, box.height, radius);
  }
  void words(const char* style, double x, double y, const std::string& content, double width) {
    out_ += detail::words(style, x, y, content, width);
  }

  void frame(const Box& box) {
    out_ += "<g>";
    rect(box, style_of(*box.entry), 8);
    if (box.entry->kind == Kind::cache) {
      words("small", box.x + 6, box.y + 14, box.entry->title, box.width - 8);
    } else {
      words("name", box.x + kGap, box.y + 16, box.entry->title, box.width - 2 * kGap);
      double y = box.y + 29;
      for (const std::string& line : wrapped(joined(box.entry->troubles), box.width)) {
        words("warn", box.x + kGap, y, line, box.width - 2 * kGap);
        y += kLine;
      }
      words("small", box.x + kGap, y, joined(box.entry->details), box.width - 2 * kGap);
    }
    out_ += "<title>" + about(*box.entry) + "</title></g>\n";
  }

  void card(const Box& box) {
    const Entry& entry = *box.entry;
    out_ += "<g>";
    rect(box, style_of(entry), 5);
    words("name", box.x + 8, box.y + 17, entry.title, box.width - 16);
    double y = box.y + 32;
    for (const std::string& line : lines_of(entry)) {
      words("small", box.x + 8, y, line, box.width - 12);
      y += 14;
    }
    if (!entry.troubles.empty()) words("warn", box.x + 8, y, entry.troubles.front(), box.width - 12);
    out_ += "<title>" + about(entry) + "</title></g>\n";
  }

  void cores(const Box& box) {
    const std::size_t columns = std::min<std::size_t>(box.entry->cores, kCoresInRow);
    out_ += "<g>";
    for (std::size_t i = 0; i < box.entry->cores; ++i) {
      out_ +=
          fmt::format("<rect class=\"core\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"2\"/>",
                      box.x + static_cast<double>(i % columns) * (kCore + 3),
                      box.y + static_cast<double>(i / columns) * (kCore + 3), kCore, kCore);
    }
    if (box.entry->cores > 2)
      words("small", box.x, box.y + box.height - 4, box.entry->title, std::max(box.width, 120.0));
    out_ += "<title>" + about(*box.entry) + "</title></g>\n";
  }

  void curve(const AcceleratorLink& link, const Box* a, const Box* b) {
    const double ax = a->x + a->width / 2;
    const double bx = b->x + b->width / 2;
    const double ay = a->y + a->height / 2;
    const double by = b->y + b->height / 2;
    const double bend = std::min(40 + std::abs(ax - bx) / 6, 150.0);
    const double wide = link.lanes > 0 ? std::min(1.0 + 0.5 * (link.lanes - link.lanes_down), 6.0) : 2.5;
    out_ += fmt::format(
        "<path class=\"link{}\" d=\"M{:.0f} {:.0f}C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}\" "
        "stroke-width=\"{:.1f}\"><title>{} - {}: {}</title></path>\n",
        link.lanes_down > 0 ? " badline" : "", ax, ay, ax, std::max(ay, by) + bend, bx, std::max(ay, by) + bend, bx, by,
        wide, escaped(label_of(index_, link.from)), escaped(label_of(index_, index_.at_bus(link.to))),
        link.lanes > 0 ? text(link.lanes - link.lanes_down, ' ', name_of(link.kind), " lanes")
                       : rate_text(static_cast<double>(link.bytes_per_second)));
  }

  const Index& index_;
  std::map<PartIndex, const Box*> places_;
  std::string out_;
};

}  // namespace

std::string picture(const Index& index, const Entry& outline) {
  Box box = measured(outline);
  place(box, kMargin, kTop);
  const double width = std::max(box.width + 2 * kMargin, 620.0);
  Drawing drawing{index};
  drawing.remember(box);
  drawing.frames(box);
  const double bottom = drawing.links(box.y + box.height + kGap, box.width);
  drawing.cards(box);
  drawing.legend(bottom + kGap);
  const std::string facts = joined(outline.details);
  return detail::svg(width, bottom + 46, "Topology of " + outline.title,
                     detail::words("title", kMargin + kGap, 32, outline.title, width - 2 * kMargin) +
                         detail::words("small", kMargin + kGap, 52, facts, width - 2 * kMargin) + drawing.take());
}

}  // namespace troupe::topology
