#include "apps/topology/plan_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "apps/topology/detail/svg.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/machine.hpp"

// Nodes are drawn below each other. Each is measured first and then drawn from left to right: NUMA nodes with their
// cores, below them a card for each rank, on the right its NICs, with links that end at the bar of the network.
namespace troupe {
namespace {

using topology::bytes_text;
using topology::detail::kLetter;

constexpr double kEdge = 20;  // around the picture
constexpr double kSpace = 10;
constexpr double kSquare = 14;  // a core
constexpr double kStep = 17;
constexpr double kNumaHeader = 44;
constexpr double kNodeHeader = 44;
constexpr double kRankWidth = 224;
constexpr double kRankHeight = 48;
constexpr double kNicWidth = 190;
constexpr double kNicHeight = 48;
constexpr double kLinkWidth = 110;  // from NICs to the network
constexpr double kLeft = 946;       // width for NUMA nodes and ranks
constexpr std::size_t kCoresInLine = 12;
constexpr std::size_t kMostNodes = 8;
constexpr std::size_t kMostCards = 32;   // ranks of a node
constexpr std::size_t kMostCores = 384;  // cores of a NUMA node

/// Colours far apart on the colour wheel; the same local rank has the same colour on every node.
std::string color_of(std::uint32_t local_rank) {
  const double hue = std::fmod(local_rank * 137.508 + 210, 360.0) / 60;
  const double high = local_rank % 2 == 0 ? 0.80 : 0.66;
  const double low = 0.30;
  const double middle = low + (high - low) * (1 - std::abs(std::fmod(hue, 2.0) - 1));
  constexpr std::array<std::array<int, 3>, 6> kPlaces{
      {{2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {0, 1, 2}, {1, 0, 2}, {2, 0, 1}}};
  const std::array levels{low, middle, high};
  const auto& place = kPlaces[static_cast<std::size_t>(hue) % 6];
  const auto part = [&](std::size_t i) {
    return static_cast<int>(std::lround(255 * levels[static_cast<std::size_t>(place[i])]));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", part(0), part(1), part(2));
}

std::string counted(std::size_t count, std::string_view one) { return text(count, ' ', one, count == 1 ? "" : "s"); }

std::string share_text(std::uint64_t used, std::uint64_t there) {
  return there == 0 ? bytes_text(used) : text(bytes_text(used), " of ", bytes_text(there));
}

enum class CoreUse : std::uint8_t { free, computes, control_lane, bulk_lane };

struct DrawnCore {
  const Core* core = nullptr;
  CoreUse use = CoreUse::free;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t users = 0;
};

struct DrawnNuma {
  std::uint32_t place = 0;  // index in Topology::numa
  std::vector<DrawnCore> cores;
  std::vector<std::string> accelerators;
  double x = 0, y = 0, width = 0, height = 0;
};

struct DrawnNode {
  std::size_t number = 0;
  const NodePlan* plan = nullptr;
  const Topology* topology = nullptr;
  std::vector<const RankPlan*> ranks;
  std::vector<DrawnNuma> numa;
  std::vector<const Nic*> nics;
  double y = 0, height = 0;
};

constexpr std::size_t kMostIdleNics = 4;

/// The NICs that ranks use, and a few of the others.
void find_nics(DrawnNode& node) {
  std::size_t idle = 0;
  for (const Nic& nic : node.topology->nics) {
    const bool used = std::any_of(node.ranks.begin(), node.ranks.end(),
                                  [&](const RankPlan* rank) { return is_called(nic, rank->network_device); });
    if (used || (!nic.loopback && idle++ < kMostIdleNics)) node.nics.push_back(&nic);
  }
}

void find_cores(DrawnNode& node) {
  std::map<std::uint32_t, DrawnCore> users;  // by processor
  const auto note = [&](const RankPlan& rank, const std::vector<std::uint32_t>& cpus, CoreUse use) {
    for (const std::uint32_t cpu : cpus) {
      DrawnCore& core = users[cpu];
      if (core.users++ == 0) core = {nullptr, use, rank.rank.value, rank.local_rank, 1};
    }
  };
  for (const RankPlan* const rank : node.ranks) {
    note(*rank, rank->cpus, CoreUse::computes);
    note(*rank, rank->control_cpus, CoreUse::control_lane);
    note(*rank, rank->bulk_cpus, CoreUse::bulk_lane);
  }
  std::map<std::uint32_t, DrawnNuma> numa;
  for (const Core& core : node.topology->cores) {
    if (core.cpus.empty()) continue;
    DrawnNuma& at = numa[core.numa];
    at.place = core.numa;
    const auto user = users.find(core.cpus.front());
    at.cores.push_back(user == users.end() ? DrawnCore{} : user->second);
    at.cores.back().core = &core;
  }
  for (const Accelerator& device : node.topology->accelerators)
    if (device.numa >= 0 && numa.contains(static_cast<std::uint32_t>(device.numa)))
      numa[static_cast<std::uint32_t>(device.numa)].accelerators.push_back(device.name);
  for (auto& [place, drawn] : numa) {
    std::stable_sort(drawn.cores.begin(), drawn.cores.end(),
                     [](const DrawnCore& a, const DrawnCore& b) { return a.core->l3 < b.core->l3; });
    node.numa.push_back(std::move(drawn));
  }
}

struct CorePlace {
  double x = 0, y = 0;
};

/// Places relative to the upper left corner of all cores. Cores that share a cache are together, in one line if
/// possible.
std::vector<CorePlace> places_of_cores(const DrawnNuma& numa) {
  constexpr double kBetweenCaches = 6;
  constexpr double kLine = kCoresInLine * kStep + 1;
  std::vector<CorePlace> places;
  double x = 0, y = 0;
  for (std::size_t i = 0; i < std::min(numa.cores.size(), kMostCores); ++i) {
    if (i > 0 && numa.cores[i].core->l3 != numa.cores[i - 1].core->l3) {
      std::size_t end = i;
      while (end < numa.cores.size() && numa.cores[end].core->l3 == numa.cores[i].core->l3) ++end;
      x += kBetweenCaches;
      if (x + static_cast<double>(end - i) * kStep > kLine) x = kLine;
    }
    if (x + kStep > kLine) {
      x = 0;
      y += kStep;
    }
    places.push_back({x, y});
    x += kStep;
  }
  return places;
}

/// Computes sizes, and positions within the node.
void measure(DrawnNode& node) {
  double x = kSpace, y = kNodeHeader, row = 0;
  for (DrawnNuma& numa : node.numa) {
    numa.width = kCoresInLine * kStep + 2 * kSpace;
    const double devices = numa.accelerators.empty() ? 0 : 18;
    numa.height = kNumaHeader + places_of_cores(numa).back().y + kStep + kSpace + devices;
    if (x > kSpace && x + numa.width > kLeft) {
      x = kSpace;
      y += row + kSpace;
      row = 0;
    }
    numa.x = x;
    numa.y = y;
    x += numa.width + kSpace;
    row = std::max(row, numa.height);
  }
  const std::size_t cards = std::min(node.ranks.size(), kMostCards);
  const auto in_line = static_cast<std::size_t>(kLeft / (kRankWidth + kSpace));
  const auto lines = static_cast<double>((cards + in_line - 1) / in_line);
  const double left = y + row + kSpace + lines * (kRankHeight + 6) + (node.ranks.size() > cards ? 20 : 0);
  const double right = kNodeHeader + static_cast<double>(node.nics.size()) * (kNicHeight + 6);
  node.height = std::max(left, right) + kSpace;
}

class PlanDrawing {
 public:
  PlanDrawing(const Plan& plan, const RankOrders& orders) : plan_(plan), orders_(orders) {}

  void node(const DrawnNode& node) {
    rect("package", kEdge, node.y, kLeft + kNicWidth + 2 * kSpace, node.height, 8);
    words("name", kEdge + kSpace, node.y + 18, text("node ", node.number, ": ", node.plan->host), kLeft - 20);
    const std::string about = text(counted(node.ranks.size(), "rank"), ", memory ",
                                   share_text(node.plan->memory_used, node.plan->memory_there));
    words("small", kEdge + kSpace, node.y + 33, about, kLeft - 240);
    bar(kEdge + kLeft - 210, node.y + 22, 200, node.plan->memory_used, node.plan->memory_there, "memory of the node");
    for (const DrawnNuma& numa : node.numa) numa_node(node, numa);
    edge_inside(node);
    ranks(node);
    nics(node);
  }

  void network(double top, double bottom) {
    const double x = network_x();
    out_ += fmt::format(
        "<g><rect class=\"fabric\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"30\" height=\"{:.0f}\" rx=\"6\"/><text "
        "class=\"name\" "
        "transform=\"translate({:.0f} {:.0f}) rotate(90)\" text-anchor=\"middle\">network</text></g>\n",
        x, top, bottom - top, x + 11, (top + bottom) / 2);
  }
  static double network_x() { return kEdge + kLeft + kNicWidth + 2 * kSpace + kLinkWidth; }

  void legend(double y) {
    double x = kEdge + kSpace;
    const auto say = [&](std::string_view name) {
      words("small", x + 20, y + 11, std::string{name}, 400);
      x += 40 + kLetter * static_cast<double>(name.size());
    };
    square(x, y, {nullptr, CoreUse::computes, 0, 0, 1}, "a core that computes");
    say("core, in its rank's colour");
    square(x, y, {nullptr, CoreUse::control_lane, 0, 0, 1}, "");
    say("of its control lane");
    square(x, y, {nullptr, CoreUse::bulk_lane, 0, 0, 1}, "");
    say("of its bulk lane");
    square(x, y, {}, "");
    say("free");
    out_ += fmt::format("<path class=\"link badline\" d=\"M{:.0f} {:.0f}h16\" stroke-width=\"3\"/>", x, y + 7);
    say("slowest edge of the ring");
  }

  void words(const char* style, double x, double y, const std::string& content, double width) {
    out_ += topology::detail::words(style, x, y, content, width);
  }

  std::string take() { return std::move(out_); }

 private:
  void rect(const char* style, double x, double y, double width, double height, double radius) {
    out_ +=
        fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"{:g}\"/>\n",
                    style, x, y, width, height, radius);
  }

  void bar(double x, double y, double width, std::uint64_t used, std::uint64_t there, const char* what) {
    if (there == 0) return;
    const double part = std::clamp(static_cast<double>(used) / static_cast<double>(there), 0.0, 1.0);
    out_ += fmt::format(
        "<g><rect class=\"other\" x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"{2:.0f}\" height=\"8\" rx=\"3\"/><rect "
        "class=\"memory\" x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"{3:.1f}\" height=\"8\" rx=\"3\"/><title>{4}: "
        "{5}</title></g>\n",
        x, y, width, used == 0 ? 0.0 : std::max(part * width, 2.0), what, share_text(used, there));
  }

  void square(double x, double y, const DrawnCore& core, const std::string& about) {
    const std::string color = color_of(core.local_rank);
    std::string style = "class=\"core\" fill-opacity=\"0.35\"";
    if (core.use == CoreUse::computes) style = fmt::format("fill=\"{}\"", color);
    if (core.use == CoreUse::control_lane || core.use == CoreUse::bulk_lane)
      style = fmt::format("class=\"other\" style=\"stroke:{};stroke-width:3\"", color);
    const double inset = core.use == CoreUse::control_lane || core.use == CoreUse::bulk_lane ? 1.5 : 0;
    out_ += fmt::format("<g><rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\"/>", style,
                        x + inset, y + inset, kSquare - 2 * inset, kSquare - 2 * inset);
    if (core.use == CoreUse::bulk_lane)
      out_ += fmt::format("<circle fill=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>", color, x + kSquare / 2,
                          y + kSquare / 2);
    if (!about.empty()) out_ += fmt::format("<title>{}</title>", escaped(about));
    out_ += "</g>\n";
  }

  static std::string about(const DrawnCore& core) {
    const std::string cpus = text("core ", core.core->index, ", processors ", joined(core.core->cpus));
    switch (core.use) {
      case CoreUse::free: return cpus + ": free";
      case CoreUse::computes: return text(cpus, ": rank ", core.rank, core.users > 1 ? " and others" : "");
      case CoreUse::control_lane: return text(cpus, ": control lane of rank ", core.rank);
      case CoreUse::bulk_lane: return text(cpus, ": bulk lane of rank ", core.rank);
    }
    return cpus;
  }

  void numa_node(const DrawnNode& node, const DrawnNuma& numa) {
    const double x = kEdge + numa.x, y = node.y + numa.y;
    rect("other", x, y, numa.width, numa.height, 6);
    const bool is_known = numa.place < node.topology->numa.size();
    const std::uint32_t number = is_known ? node.topology->numa[numa.place].os_index : numa.place;
    const auto use = std::find_if(node.plan->numa.begin(), node.plan->numa.end(),
                                  [&](const NumaUse& each) { return each.os_index == number; });
    words("name", x + kSpace, y + 16, text("NUMA ", number), 90);
    if (use != node.plan->numa.end()) {
      words("small", x + 80, y + 16, share_text(use->used, use->there), numa.width - 84);
      bar(x + kSpace, y + 24, numa.width - 2 * kSpace, use->used, use->there, "memory of the NUMA node");
    }
    const std::vector<CorePlace> places = places_of_cores(numa);
    for (std::size_t i = 0; i < places.size(); ++i)
      square(x + kSpace + places[i].x, y + kNumaHeader - 6 + places[i].y, numa.cores[i], about(numa.cores[i]));
    if (!numa.accelerators.empty())
      words("small", x + kSpace, y + numa.height - 8, joined(numa.accelerators), numa.width - 2 * kSpace);
  }

  const DrawnNuma* numa_of(const DrawnNode& node, Rank rank) const {
    const std::vector<std::uint32_t>& numbers = plan_.ranks.at(rank.value).numa_nodes;
    for (const DrawnNuma& numa : node.numa)
      if (!numbers.empty() && numa.place < node.topology->numa.size() &&
          node.topology->numa[numa.place].os_index == numbers.front())
        return &numa;
    return nullptr;
  }

  /// Draws the ring's slowest edge if it is between two NUMA nodes of this node.
  void edge_inside(const DrawnNode& node) {
    const RankOrder& ring = orders_.ring;
    if (ring.order.size() < 2 || !std::isfinite(ring.slowest)) return;
    if (plan_.ranks.at(ring.from.value).node != node.number || plan_.ranks.at(ring.to.value).node != node.number)
      return;
    const DrawnNuma* const a = numa_of(node, ring.from);
    const DrawnNuma* const b = numa_of(node, ring.to);
    if (a == nullptr || b == nullptr || a == b) return;
    const double ax = kEdge + a->x + a->width / 2, ay = node.y + a->y + 6;
    const double bx = kEdge + b->x + b->width / 2, by = node.y + b->y + 6;
    out_ += fmt::format(
        "<path class=\"link badline\" d=\"M{:.0f} {:.0f}C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}\" "
        "stroke-width=\"3\"><title>{}</title></path>\n",
        ax, ay, ax, std::min(ay, by) - 24, bx, std::min(ay, by) - 24, bx, by,
        escaped(text("rank ", ring.from.value, " - rank ", ring.to.value, ": ", rate(ring.slowest), ", ", ring.limit)));
  }

  static std::string rate(double bytes_per_second) {
    return bytes_per_second > 0 ? fmt::format("{:.3g} GB/s", bytes_per_second / 1e9) : "rate not known";
  }

  void ranks(const DrawnNode& node) {
    double top = node.y + kNodeHeader;
    for (const DrawnNuma& numa : node.numa) top = std::max(top, node.y + numa.y + numa.height + kSpace);
    const auto in_line = static_cast<std::size_t>(kLeft / (kRankWidth + kSpace));
    const std::size_t cards = std::min(node.ranks.size(), kMostCards);
    for (std::size_t i = 0; i < cards; ++i) {
      const RankPlan& rank = *node.ranks[i];
      const double x = kEdge + kSpace + static_cast<double>(i % in_line) * (kRankWidth + kSpace);
      const double y = top + static_cast<double>(i / in_line) * (kRankHeight + 6);
      rect("other", x, y, kRankWidth, kRankHeight, 5);
      out_ += fmt::format("<rect fill=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"6\" height=\"{:.0f}\" rx=\"3\"/>\n",
                          color_of(rank.local_rank), x, y, kRankHeight);
      words("name", x + 14, y + 16,
            text("rank ", rank.rank.value, rank.rank.value == node.plan->leader ? ", leads the node" : ""),
            kRankWidth - 18);
      words("small", x + 14, y + 29,
            text(rank.device, ", ", counted(rank.device_threads, "thread"), ", ", bytes_text(rank.memory_bytes)),
            kRankWidth - 18);
      std::vector<std::string> beside;
      if (!rank.accelerator.empty()) beside.push_back("near " + rank.accelerator);
      if (!rank.network_device.empty()) beside.push_back("over " + rank.network_device);
      words("small", x + 14, y + 42, joined(beside), kRankWidth - 18);
    }
    if (node.ranks.size() > cards)
      words("small", kEdge + kSpace, node.y + node.height - 12, text(node.ranks.size() - cards, " more ranks"), 200);
  }

  void nics(const DrawnNode& node) {
    double y = node.y + kNodeHeader;
    for (const Nic* const nic : node.nics) {
      const double x = kEdge + kLeft + kSpace;
      std::vector<std::uint32_t> users;
      for (const RankPlan* const rank : node.ranks)
        if (is_called(*nic, rank->network_device)) users.push_back(rank->rank.value);
      const std::string speed = nic->bits_per_second > 0
                                    ? fmt::format("{:g} Gbit/s", static_cast<double>(nic->bits_per_second) / 1e9)
                                    : "speed not known";
      rect(users.empty() ? "other" : "nic", x, y, kNicWidth, kNicHeight, 5);
      const std::string rdma =
          nic->infiniband.empty() || nic->infiniband == nic->name ? "" : text(" (", nic->infiniband, ')');
      words("name", x + 8, y + 16, nic->name + rdma, kNicWidth - 14);
      words(
          "small", x + 8, y + 29,
          text(nic->up ? "" : "down, ", speed,
               nic->numa < 0 ? "" : text(", NUMA ", node.topology->numa[static_cast<std::size_t>(nic->numa)].os_index)),
          kNicWidth - 14);
      words("small", x + 8, y + 42,
            users.empty() ? "not used" : text(users.size() == 1 ? "rank " : "ranks ", ranges(users)), kNicWidth - 14);
      if (!users.empty()) link(node, *nic, x + kNicWidth, y + kNicHeight / 2, users.size(), speed);
      y += kNicHeight + 6;
    }
  }

  void link(const DrawnNode& node, const Nic& nic, double x, double y, std::size_t users, const std::string& speed) {
    const auto ends_here = [&](Rank rank) {
      const RankPlan& at = plan_.ranks.at(rank.value);
      return at.node == node.number && is_called(nic, at.network_device);
    };
    const RankOrder& ring = orders_.ring;
    const bool crosses = ring.order.size() > 1 && ring.slowest > 0 &&
                         plan_.ranks.at(ring.from.value).node != plan_.ranks.at(ring.to.value).node;
    const bool slowest = crosses && (ends_here(ring.from) || ends_here(ring.to));
    out_ += fmt::format(
        "<path class=\"link{}\" d=\"M{:.0f} {:.0f}H{:.0f}\" stroke-width=\"{:.1f}\"><title>{}: {}, {}</title></path>\n",
        slowest ? " badline" : "", x, y, network_x(), std::min(2.0 + 0.5 * static_cast<double>(users), 6.0),
        escaped(nic.name), escaped(speed), counted(users, "rank"));
    if (nic.bits_per_second > 0) words("small", x + 14, y - 6, speed, kLinkWidth - 16);
  }

  const Plan& plan_;
  const RankOrders& orders_;
  std::string out_;
};

}  // namespace

std::string plan_picture(const Plan& plan, std::span<const Topology* const> topologies, const RankOrders& orders) {
  std::vector<DrawnNode> nodes(std::min(plan.nodes.size(), kMostNodes));
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    nodes[n].number = n;
    nodes[n].plan = &plan.nodes[n];
    nodes[n].topology = topologies[n];
  }
  for (const RankPlan& rank : plan.ranks)
    if (rank.node < nodes.size()) nodes[rank.node].ranks.push_back(&rank);
  constexpr double kTop = 86;
  double y = kTop;
  for (DrawnNode& node : nodes) {
    find_nics(node);
    find_cores(node);
    measure(node);
    node.y = y;
    y += node.height + 14;
  }
  PlanDrawing drawing{plan, orders};
  const std::string title = text(counted(plan.ranks.size(), "rank"), " on ", counted(plan.nodes.size(), "node"));
  drawing.words("title", kEdge + kSpace, 34, title, 900);
  const std::vector<std::string> facts{
      text(name_of(plan.levels), " exchange of ", counted(plan.groups.front().buckets.size(), "bucket")),
      text("batch ", plan.batch, " a rank"), text(plan.parameters, " parameters")};
  drawing.words("small", kEdge + kSpace, 54, joined(facts), 1100);
  const std::string lines = describe(orders);
  drawing.words("small", kEdge + kSpace, 70, lines.substr(0, lines.find('\n')), 1100);
  for (const DrawnNode& node : nodes) drawing.node(node);
  if (plan.nodes.size() > 1) drawing.network(kTop, y - 14);
  if (plan.nodes.size() > nodes.size()) {
    drawing.words("small", kEdge + kSpace, y + 6, text(plan.nodes.size() - nodes.size(), " more nodes"), 300);
    y += 20;
  }
  drawing.legend(y + 4);
  const double width =
      (plan.nodes.size() > 1 ? PlanDrawing::network_x() + 30 : PlanDrawing::network_x() - kLinkWidth) + kEdge;
  return topology::detail::svg(width, y + 36, "Plan: " + title, drawing.take());
}

}  // namespace troupe
