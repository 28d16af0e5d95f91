#include "apps/topology/measured_view.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/topology/outliers.hpp"

namespace troupe::topology {
namespace {

constexpr double kGiga = 1e9;
constexpr double kOfMedian = 0.7;

/// Returns "23.1  (22.8 to 24.0)" in units of `unit`.
std::string repeats_text(const Repeats& of, double unit) {
  return fmt::format("{:>8.3g}  ({:.3g} to {:.3g})", of.median / unit, of.least / unit, of.most / unit);
}

/// Which copies are clearly slower than others with the same numbers of cores and bytes, within nodes or between them.
std::vector<bool> slow_copies(const std::vector<CopyFigure>& copies) {
  std::vector<bool> slow(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    std::vector<double> rates;
    std::size_t place = 0;
    for (std::size_t j = 0; j < copies.size(); ++j) {
      const bool alike =
          copies[j].cores == copies[i].cores && copies[j].bytes == copies[i].bytes &&
          (copies[j].cores_numa == copies[j].memory_numa) == (copies[i].cores_numa == copies[i].memory_numa);
      if (!alike) continue;
      if (j == i) place = rates.size();
      rates.push_back(copies[j].bytes_per_second.median);
    }
    slow[i] = clearly_below(rates, kOfMedian)[place];
  }
  return slow;
}

/// The same for messages, by their means.
std::vector<bool> slow_messages(const std::vector<MessageFigure>& messages) {
  std::vector<bool> slow(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    std::vector<double> rates;
    std::size_t place = 0;
    for (std::size_t j = 0; j < messages.size(); ++j) {
      if (messages[j].means != messages[i].means) continue;
      if (j == i) place = rates.size();
      rates.push_back(messages[j].bytes_per_second.median);
    }
    slow[i] = clearly_below(rates, kOfMedian)[place];
  }
  return slow;
}

/// GPUs, their products, and the links of each.
std::string gpus_text(const Measurements& figures) {
  std::string out;
  if (!figures.gpus.empty()) out += "GPUs, GB/s read and written in their memory\n";
  for (const GpuFigure& gpu : figures.gpus) {
    out += fmt::format("  {:<13} {} GB/s  {}\n", gpu.bus, repeats_text(gpu.bytes_per_second, kGiga), gpu.model);
    out += fmt::format("    launch of a recorded step, us  {}\n", repeats_text(gpu.launch_seconds, 1e-6));
    out += fmt::format("    each further kernel of it, us  {}\n", repeats_text(gpu.kernel_seconds, 1e-6));
    const auto add = [&](const std::vector<ComputeFigure>& products, const std::string& by) {
      for (const ComputeFigure& each : products)
        out += fmt::format("    {:>2} x {:<5}{:<5}{:>5} rows {} GFLOP/s  {}\n", each.layers, each.units, each.dtype,
                           each.rows, repeats_text(each.flops_per_second, kGiga), by);
    };
    add(gpu.compute, gpu.products);
    add(gpu.own, "own kernels");
  }
  if (!figures.gpu_links.empty()) out += "copies by GPUs, us of small ones, GB/s of large ones\n";
  for (const GpuLinkFigure& link : figures.gpu_links)
    out += fmt::format("  {} us {} GB/s  {} to {}\n", repeats_text(link.seconds, 1e-6),
                       repeats_text(link.bytes_per_second, kGiga), link.from, link.to);
  return out;
}

/// Measured copies from the GPUs of the rows to those of the columns.
void add_measured_gpus(const Index& index, PathTable& table, const Measurements& figures) {
  const auto bus = [&](PartIndex part) {
    const auto& pci = index.machine().parts[part].pci;
    return pci ? pci->bus : std::string{};
  };
  std::vector<double> measured(table.paths.size());
  bool any = false;
  for (const GpuLinkFigure& link : figures.gpu_links)
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      for (std::size_t j = 0; j < table.columns.size(); ++j) {
        if (link.from.empty() || bus(table.rows[i]) != link.from || bus(table.columns[j]) != link.to) continue;
        measured[i * table.columns.size() + j] = link.bytes_per_second.median;
        any = true;
      }
  if (any) table.measured = std::move(measured);
}

}  // namespace

std::string measured_text(const Measurements& figures) {
  std::string out = fmt::format("Measured on {}, {} ({} core{}{}); median (least to most)\n", figures.host,
                                figures.date, figures.cores, figures.cores == 1 ? "" : "s",
                                figures.cpu_model.empty() ? "" : ", " + figures.cpu_model);
  if (figures.busy > 0.1)
    out += fmt::format("! others used {:.0f} % of the processors before: figures are too low\n", 100 * figures.busy);
  if (!figures.copies.empty()) out += "memory copies, GB/s read and written\n";
  const std::vector<bool> slow = slow_copies(figures.copies);
  for (std::size_t i = 0; i < figures.copies.size(); ++i) {
    const CopyFigure& each = figures.copies[i];
    out += fmt::format("  NUMA {:<3} to NUMA {:<3}{:>4} core{} {:>6} MiB each {}{}\n", each.cores_numa,
                       each.memory_numa, each.cores, each.cores == 1 ? " " : "s", each.bytes >> 20,
                       repeats_text(each.bytes_per_second, kGiga), slow[i] ? "  !" : "");
  }
  if (!figures.compute.empty()) out += "dense layers, forward and backward, GFLOP/s of each device\n";
  for (const ComputeFigure& each : figures.compute)
    out += fmt::format("  {:>2} x {:<5}{:<5}{:>5} rows {:>4} device{} {:>4} thread{} each {}\n", each.layers,
                       each.units, each.dtype, each.rows, each.devices, each.devices == 1 ? " " : "s", each.threads,
                       each.threads == 1 ? " " : "s", repeats_text(each.flops_per_second, kGiga));
  if (figures.winograd) out += "  f32 convolutions of 3 x 3 use Winograd's algorithm where that gains\n";
  if (!figures.messages.empty()) out += "messages, us in one direction for 8 bytes, GB/s of large ones\n";
  const std::vector<bool> slow_ways = slow_messages(figures.messages);
  for (std::size_t i = 0; i < figures.messages.size(); ++i) {
    const MessageFigure& each = figures.messages[i];
    out +=
        fmt::format("  {:<8}{} us {} GB/s  {}{}\n", each.means, repeats_text(each.seconds, 1e-6),
                    repeats_text(each.bytes_per_second, kGiga),
                    each.same_node ? "within " + each.from : each.from + " to " + each.to, slow_ways[i] ? "  !" : "");
  }
  return out + gpus_text(figures);
}

void add_measured(const Index& index, PathTable& table, const Measurements& figures) {
  const auto number = [&](PartIndex part) { return static_cast<std::uint32_t>(index.machine().parts[part].os_index); };
  const auto is_numa = [&](PartIndex part) { return index.machine().parts[part].kind == PartKind::numa; };
  if (!std::all_of(table.rows.begin(), table.rows.end(), is_numa) ||
      !std::all_of(table.columns.begin(), table.columns.end(), is_numa))
    return add_measured_gpus(index, table, figures);
  const std::vector<bool> slow = slow_copies(figures.copies);
  table.measured.assign(table.paths.size(), 0);
  std::vector<std::uint64_t> bytes(table.paths.size());
  for (std::size_t f = 0; f < figures.copies.size(); ++f) {
    const CopyFigure& each = figures.copies[f];
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      for (std::size_t j = 0; j < table.columns.size(); ++j) {
        const std::size_t at = i * table.columns.size() + j;
        if (number(table.rows[i]) != each.cores_numa || number(table.columns[j]) != each.memory_numa) continue;
        // The largest blocks fit into no cache; of these the fastest copy is shown.
        if (each.bytes < bytes[at] || (each.bytes == bytes[at] && each.bytes_per_second.median <= table.measured[at]))
          continue;
        bytes[at] = each.bytes;
        table.measured[at] = each.bytes_per_second.median;
        table.slow[at] = table.slow[at] || slow[f];
      }
    }
  }
}

}  // namespace troupe::topology
