#include "apps/topology/text_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/outliers.hpp"

namespace troupe::topology {
namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kRed = "\x1b[31;1m";
constexpr const char* kPlain = "\x1b[0m";

const char* color_of(Entry::Kind kind) {
  switch (kind) {
    case Entry::Kind::gpu: return "\x1b[32;1m";
    case Entry::Kind::nic: return "\x1b[36;1m";
    case Entry::Kind::memory: return "\x1b[33m";
    case Entry::Kind::pci_switch: return "\x1b[35m";
    default: return kBold;
  }
}

/// Words in a colour; null: in none. Only the colour is a command to the terminal, whatever the words are.
struct Painted {
  const char* color;
  const std::string& words;
};
std::ostream& operator<<(std::ostream& out, const Painted& painted) {
  if (painted.color == nullptr) return out << painted.words;
  return out << control(painted.color) << painted.words << control(kPlain);
}

void print_lines(const Entry& entry, const std::string& before, bool last, bool root, bool color, std::ostream& out) {
  out << before << (root ? "" : last ? "└─ " : "├─ ") << Painted{color ? color_of(entry.kind) : nullptr, entry.title};
  for (std::size_t i = 0; i < entry.details.size(); ++i) out << (i == 0 ? "  " : ", ") << entry.details[i];
  for (const std::string& trouble : entry.troubles) out << "  " << Painted{color ? kRed : nullptr, text("! ", trouble)};
  out << '\n';
  const std::string next = root ? before : before + (last ? "   " : "│  ");
  for (const Entry& below : entry.below) print_lines(below, next, &below == &entry.below.back(), false, color, out);
}

constexpr const char* kNuma = "NUMA x NUMA";

/// A table's title, and between which parts its paths are.
struct TableEnds {
  std::string title;
  std::vector<PartIndex> rows;
  std::vector<PartIndex> columns;
  bool is_too_large() const { return columns.size() > kMostCells / rows.size(); }
};

std::vector<TableEnds> table_ends(const Index& index) {
  const Machine& machine = index.machine();
  std::vector<PartIndex> gpus;
  std::vector<PartIndex> nics;
  std::vector<PartIndex> numa;
  for (const Gpu& gpu : machine.gpus) gpus.push_back(gpu.part);
  for (const Nic& nic : machine.nics)
    if (is_whole_nic(machine, nic)) nics.push_back(nic.part);
  for (PartIndex i = 0; i < machine.parts.size(); ++i)
    if (machine.parts[i].kind == PartKind::numa) numa.push_back(i);
  std::vector<TableEnds> all;
  if (gpus.size() > 1) all.push_back({kGpus, gpus, gpus});
  if (!gpus.empty() && !nics.empty()) all.push_back({kGpusAndNics, gpus, nics});
  if (numa.size() > 1) all.push_back({kNuma, numa, numa});
  return all;
}

PathTable table_of(const Index& index, const TableEnds& of) {
  PathTable table{.title = of.title, .rows = of.rows, .columns = of.columns};
  std::vector<std::pair<PartIndex, PartIndex>> ends;
  for (const PartIndex row : table.rows) {
    for (const PartIndex column : table.columns) {
      table.paths.push_back(best_path(index, row, column));
      ends.emplace_back(row, column);
    }
  }
  table.slow = slow_paths(index, table.paths, ends);
  return table;
}

void add_distances(const Machine& machine, PathTable& table) {
  for (const Distances& matrix : machine.distances) {
    if (matrix.name != "NUMALatency") continue;
    const auto place = [&](PartIndex part) {
      return static_cast<std::size_t>(std::find(matrix.parts.begin(), matrix.parts.end(), part) - matrix.parts.begin());
    };
    for (const PartIndex row : table.rows) {
      for (const PartIndex column : table.columns) {
        if (place(row) == matrix.parts.size() || place(column) == matrix.parts.size()) return table.distances.clear();
        table.distances.push_back(matrix.values[place(row) * matrix.parts.size() + place(column)]);
      }
    }
    return;
  }
}

}  // namespace

void print_tree(const Entry& outline, bool color, std::ostream& out) {
  print_lines(outline, "", true, true, color, out);
}

std::vector<PathTable> path_tables(const Index& index) {
  std::vector<PathTable> tables;
  for (const TableEnds& ends : table_ends(index)) {
    if (ends.is_too_large()) continue;
    tables.push_back(table_of(index, ends));
    if (ends.title == kNuma) add_distances(index.machine(), tables.back());
  }
  return tables;
}

std::string left_out_text(const Index& index) {
  std::string out;
  for (const TableEnds& ends : table_ends(index)) {
    if (!ends.is_too_large()) continue;
    out += text(ends.title, ": ", grouped(ends.rows.size()), " x ", grouped(ends.columns.size()), " are more than the ",
                grouped(kMostCells), " cells that a table has; `rttopo explain \"", label_of(index, ends.rows.front()),
                "\" \"", label_of(index, ends.columns.back()), "\"` tells of two parts.\n");
  }
  return out;
}

std::string unknown_ends_text(const Index& index, const std::vector<PartIndex>& gpus) {
  std::vector<std::string> names;
  std::string_view kind;
  for (const PartIndex gpu : gpus) {
    const auto link = std::ranges::find_if(
        index.links(), [&](const AcceleratorLink& each) { return each.from == gpu && !end_is_known(index, each); });
    if (link == index.links().end()) continue;
    kind = name_of(link->kind);
    names.push_back(label_of(index, gpu));
  }
  if (names.empty()) return {};
  return text(kind, " lanes of ", joined(names), " are not counted: their other end is not in this description.\n");
}

std::string no_links_text(const Index& index) {
  if (std::ranges::any_of(index.links(),
                          [](const AcceleratorLink& link) { return link.kind != AcceleratorLink::Kind::c2c; }))
    return {};
  return "This description has no NVLink or xGMI; if the machine has them, the bandwidths between GPUs, and ring and "
         "tree, are too low.\n";
}

void print_table(const Index& index, const PathTable& table, bool color, std::ostream& out) {
  std::vector<std::vector<std::string>> cells{{table.title}};
  for (const PartIndex column : table.columns) cells[0].push_back(label_of(index, column));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    auto& line = cells.emplace_back();
    line.push_back(label_of(index, table.rows[i]));
    for (std::size_t j = 0; j < table.columns.size(); ++j) {
      const std::size_t at = i * table.columns.size() + j;
      const Path& path = table.paths[at];
      std::string cell = text_of(path);
      if (path.bytes_per_second > 0)
        cell += fmt::format(" {}{:.3g}", path.assumed ? "~" : "", path.bytes_per_second / 1e9);
      if (!table.distances.empty()) cell += text(" d", table.distances[at]);
      if (!table.measured.empty() && table.measured[at] > 0) cell += fmt::format(" m{:.3g}", table.measured[at] / 1e9);
      if (table.slow[at]) cell += " !";
      line.push_back(std::move(cell));
    }
  }
  std::vector<std::size_t> widths(cells[0].size());
  for (const auto& line : cells)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool red = color && line[i].ends_with('!');
      out << Painted{red ? kRed : nullptr,
                     i + 1 < line.size() ? fmt::format("{:<{}}", line[i], widths[i] + 2) : line[i]};
    }
    out << '\n';
  }
}

std::string legend_text(const std::vector<PathTable>& tables) {
  struct Sign {
    std::string_view sign, meaning;
  };
  // In NV4 and XG2 the number is the number of lanes, in NVL and XGL it is not known.
  static constexpr Sign kClasses[] = {{"X", "itself"},
                                      {"NV", "NVLink, with the number of lanes"},
                                      {"NVL", "NVLink, whose number of lanes is not known"},
                                      {"XG", "xGMI, with the number of lanes"},
                                      {"XGL", "xGMI, whose number of lanes is not known"},
                                      {"NVB", "NVLink or xGMI over another GPU"},
                                      {"C2C", "a coherent link to the processor"},
                                      {"PIX", "one PCI switch that both are behind"},
                                      {"PXB", "several PCI switches, without the processor"},
                                      {"PHB", "a PCI host bridge"},
                                      {"NODE", "the processor, near the same memory"},
                                      {"SYS", "another memory node, over the link between processors"}};
  std::set<std::string> classes;
  bool assumed = false, slow = false, distances = false, measured = false;
  for (const PathTable& table : tables) {
    for (const Path& path : table.paths) {
      std::string name = text_of(path);
      name.erase(name.find_last_not_of("0123456789") + 1);
      classes.insert(name);
      assumed = assumed || path.assumed;
    }
    slow = slow || std::find(table.slow.begin(), table.slow.end(), true) != table.slow.end();
    distances = distances || !table.distances.empty();
    measured = measured || !table.measured.empty();
  }
  if (classes.empty()) return {};
  std::string out = fmt::format(
      "Bandwidths are modelled, in GB/s in one direction; that of a PCI link is {:.0f} % of the rate that `show` "
      "prints.\n",
      100 * kPciEfficiency);
  for (const Sign& each : kClasses)
    if (classes.contains(std::string{each.sign})) out += fmt::format("  {:<5} {}\n", each.sign, each.meaning);
  if (assumed) out += "  ~     a PCI link is not known: PCI Express 3 x16 is assumed\n";
  if (distances) out += "  d     distance that the firmware tells, 10 within a node\n";
  if (measured) out += "  m     measured by `rttopo bench`\n";
  if (slow)
    out += "  !     slow: below 70 % of the median of its class, or over a link that `rttopo doctor` warns of\n";
  return out;
}

std::string ring_text(const Index& index, const std::vector<PartIndex>& members, const Ring& ring) {
  std::vector<std::string> names;
  for (const std::size_t member : ring.order) names.push_back(label_of(index, members[member]));
  names.push_back(names.front());
  return text(joined(names, " - "), ", slowest edge ", rate_text(ring.slowest), ring.exact ? "" : " (search cut off)");
}

}  // namespace troupe::topology
