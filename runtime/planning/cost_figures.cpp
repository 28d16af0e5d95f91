#include "runtime/planning/detail/cost_figures.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/planning/gpu_models.hpp"

namespace troupe::detail {
namespace {

using topology::ComputeFigure;
using topology::CopyFigure;
using topology::GpuFigure;
using topology::GpuLinkFigure;
using topology::Measurements;
using topology::MessageFigure;

/// Interpolates, on a logarithmic scale of sizes, between the two `points` (by size, ascending, positive) around `at`;
/// beyond the ends it takes the nearest one.
double between(const std::map<double, double>& points, double at) {
  const auto above = points.lower_bound(at);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin() || above->first == at) return above->second;
  const auto below = std::prev(above);
  const double share = std::log(at / below->first) / std::log(above->first / below->first);
  return below->second + share * (above->second - below->second);
}

/// Interpolates linearly for `count` between the values for 1 and for `most`.
double straight(double for_one, double for_most, double count, double most) {
  if (most <= 1) return for_one;
  return for_one + (for_most - for_one) * std::clamp((count - 1) / (most - 1), 0.0, 1.0);
}

/// The rate for `rows` in a model with so many `weights`, of the figures that fit; 0: none does.
double rate_of(const std::vector<ComputeFigure>& figures, std::uint32_t rows, double weights,
               const std::function<bool(const ComputeFigure&)>& fits) {
  std::map<double, std::map<double, double>> by_weights;  // by their number, then by rows
  for (const ComputeFigure& each : figures)
    if (fits(each)) by_weights[each.weights()][each.rows] = each.flops_per_second.median;
  std::map<double, double> rate;
  for (const auto& [count, by_rows] : by_weights) rate[count] = between(by_rows, rows);
  return rate.empty() ? 0 : between(rate, std::max(1.0, weights));
}

}  // namespace

double CostLookup::flops(const std::string& dtype, std::uint32_t rows, double weights, std::uint32_t threads,
                         std::uint32_t others) {
  const auto [of, type] = compute_source(dtype);
  const auto rate = [&, of = of, type = type](auto fits) {
    return rate_of(of->compute, rows, weights,
                   [&](const ComputeFigure& each) { return each.dtype == type && fits(each); });
  };
  std::uint32_t devices = 1, most_threads = 1;
  for (const ComputeFigure& each : of->compute) {
    if (each.dtype != type) continue;
    if (each.threads == 1) devices = std::max(devices, each.devices);
    if (each.devices == 1) most_threads = std::max(most_threads, each.threads);
  }
  const double alone = rate([](const ComputeFigure& f) { return f.devices == 1 && f.threads == 1; });
  const double crowded = rate([&](const ComputeFigure& f) { return f.devices == devices && f.threads == 1; });
  const double together = rate([&](const ComputeFigure& f) { return f.devices == 1 && f.threads == most_threads; });
  TROUPE_CHECK(alone > 0 && crowded > 0 && together > 0, Code::invalid, "the figures of ", of->host,
               " have no rate of one thread on ", type, "; run `rttopo bench` again");
  const double by_thread = straight(1, together / (most_threads * alone), threads, most_threads);
  const double by_neighbours = straight(1, crowded / alone, 1.0 + others, devices);
  return threads * alone * by_thread * by_neighbours;
}

double CostLookup::copy(std::uint32_t cores, double bytes) {
  const Measurements& of = figures_.measured.copies.empty() ? assume("memory") : figures_.measured;
  std::uint32_t most = 1;
  for (const CopyFigure& each : of.copies) most = std::max(most, each.cores);
  const auto rates = [&](std::uint32_t count) {
    std::map<double, double> by_bytes;
    for (const CopyFigure& each : of.copies)
      if (each.cores == count && each.cores_numa == each.memory_numa)
        by_bytes[static_cast<double>(each.bytes)] = each.bytes_per_second.median / count;
    return by_bytes.empty() ? 0 : between(by_bytes, bytes);
  };
  const double alone = rates(1), crowded = rates(most);
  TROUPE_CHECK(alone > 0 || crowded > 0, Code::invalid, "the figures of ", of.host,
               " have no copies within a memory node; run `rttopo bench` again");
  return straight(alone > 0 ? alone : crowded, crowded > 0 ? crowded : alone, cores, most);
}

MessageFigure CostLookup::near(const std::string& means) {
  for (const Measurements* of : {&figures_.measured, &figures_.assumed})
    for (const MessageFigure& each : of->messages) {
      if (!each.same_node || each.means != means || each.bytes_per_second.median <= 0) continue;
      if (of == &figures_.assumed) (void)assume("messages within a node over " + means);
      return each;
    }
  fail(Code::invalid, text("there are no figures of messages within a node over ", means));
}

MessageFigure CostLookup::far(bool one_host) {
  std::optional<MessageFigure> slowest;
  for (const MessageFigure& each : figures_.measured.messages) {
    if (each.same_node || each.bytes_per_second.median <= 0) continue;
    if (!slowest || each.bytes_per_second.median < slowest->bytes_per_second.median) slowest = each;
  }
  if (slowest) return *slowest;
  guessed_ = true;
  if (one_host) {
    note(
        "Between the nodes, which are network namespaces of one host, nothing was measured: TCP within the host is "
        "assumed.");
    return near("tcp");
  }
  for (const MessageFigure& each : figures_.assumed.messages)
    if (!each.same_node) {
      note(text("Between nodes nothing was measured (rttopo bench --hosts): ",
                std::round(each.bytes_per_second.median * 8 / 1e6), " Mbit/s are assumed."));
      return each;
    }
  fail(Code::invalid, "there are no figures of messages between nodes");
}

bool CostLookup::has_winograd() {
  const Measurements& of = figures_.measured.compute.empty() ? figures_.assumed : figures_.measured;
  if (!of.winograd)
    note(
        "Convolutions are assumed to be direct: the figures do not say that this processor uses Winograd's algorithm.");
  return of.winograd;
}

GpuFigure CostLookup::gpu(const GpuUse& gpu) {
  const auto slowest_of = [&](const std::vector<GpuFigure>& figures, bool needs_bus) {
    const GpuFigure* slowest = nullptr;
    for (const GpuFigure& each : figures) {
      if (each.model != gpu.model || (needs_bus && each.bus != gpu.bus)) continue;
      if (slowest == nullptr || each.bytes_per_second.median < slowest->bytes_per_second.median) slowest = &each;
    }
    return slowest;
  };
  const std::string name = gpu.model.empty() ? "GPUs whose model has no name here" : gpu.model;
  if (const GpuFigure* const measured = slowest_of(figures_.measured.gpus, gpu.model.empty())) {
    note(text("Figures of ", name, ", ", measured->products.empty() ? "own kernels" : measured->products,
              ", by rttopo bench on ", figures_.measured.host, ", ", figures_.measured.date, "."));
    return *measured;
  }
  const GpuFigure* const found = slowest_of(figures_.assumed.gpus, true);
  const GpuFigure modelled = found != nullptr ? *found : unknown_gpu(gpu.bus, gpu.model);
  guessed_ = true;
  note(text("No figures of ", name, " were measured (rttopo bench): its rates are peaks that follow from ",
            modelled.modelled_from, ". A real step takes longer."));
  return modelled;
}

double CostLookup::gpu_flops(const GpuFigure& gpu, const std::string& dtype, bool by_library, std::uint32_t rows,
                             double weights) {
  guessed_ |= !gpu.modelled_from.empty();
  const std::vector<ComputeFigure>& figures = by_library && !gpu.compute.empty() ? gpu.compute : gpu.own;
  const auto rate = [&](const char* type) {
    return rate_of(figures, rows, weights, [&](const ComputeFigure& each) { return each.dtype == type; });
  };
  if (const double found = rate(dtype.c_str()); found > 0) return found;
  const double f32 = rate("f32");
  TROUPE_CHECK(f32 > 0, Code::invalid, "the figures of the GPU at ", gpu.bus,
               " have no rate of products in f32; run `rttopo bench` again");
  if (dtype == "tf32" && &figures == &gpu.own) return f32;  // own kernels do not know it
  guessed_ = true;
  note(text("Products in ", dtype, " were not measured on a GPU: they are assumed to be as fast as in f32."));
  return f32;
}

CostLookup::CostLookup(const CostFigures& figures)
    : figures_(figures),
      measured_links_(gpu_links_in(figures.measured)),
      assumed_links_(gpu_links_in(figures.assumed)) {}

CostLookup::GpuLinks CostLookup::gpu_links_in(const Measurements& of) {
  GpuLinks links;
  for (const GpuLinkFigure& each : of.gpu_links) links.try_emplace({each.from, each.to}, &each);
  return links;
}

GpuLinkFigure CostLookup::gpu_link(const std::string& from, const std::string& to, bool measured) {
  if (const auto found = measured_links_.find({from, to}); measured && found != measured_links_.end())
    return *found->second;
  guessed_ = true;
  if (const auto found = assumed_links_.find({from, to}); found != assumed_links_.end()) return *found->second;
  note(text("Of the path from ", from, " to ", to, " nothing is known: PCI Express 3 x16 is assumed."));
  return unknown_gpu_link(from, to);
}

void CostLookup::use(UsedFigure figure) {
  if (std::ranges::find(used_, figure.what, &UsedFigure::what) == used_.end()) used_.push_back(std::move(figure));
}

std::vector<std::string> CostLookup::basis() const {
  std::vector<std::string> all;
  const Measurements& of = figures_.measured;
  all.push_back(
      of.date.empty()
          ? "Nothing was measured here: all figures are assumed, and may be wrong several times; run `rttopo bench`."
          : text("Figures of ", of.host, " by rttopo bench, ", of.date, "."));
  all.insert(all.end(), notes_.begin(), notes_.end());
  return all;
}

CostLookup::ComputeSource CostLookup::compute_source(const std::string& dtype) {
  const auto has = [](const Measurements& of, const std::string& type) {
    return std::any_of(of.compute.begin(), of.compute.end(),
                       [&](const ComputeFigure& each) { return each.dtype == type; });
  };
  if (has(figures_.measured, dtype)) return {&figures_.measured, dtype};
  if (has(figures_.measured, "f32")) {
    guessed_ = true;
    note(text("Products in ", dtype, " were not measured: they are assumed to be as fast as in f32."));
    return {&figures_.measured, "f32"};
  }
  const Measurements& of = assume("computing");
  return {&of, has(of, dtype) ? dtype : "f32"};
}

const Measurements& CostLookup::assume(const std::string& what) {
  if (!figures_.measured.date.empty()) note(text("Assumed, since it was not measured: ", what, "."));
  guessed_ = true;
  return figures_.assumed;
}

}  // namespace troupe::detail
