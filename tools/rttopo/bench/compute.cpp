#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "devices/cpu/cpu_device.hpp"
#include "tools/rttopo/bench/dense_model.hpp"
#include "tools/rttopo/bench/measures.hpp"

namespace troupe::rttopo {
namespace {

using topology::ComputeFigure;

// Weights and gradients take 4 MB and 34 MB in f32: what fits a core's share of the caches is computed faster.
constexpr DenseLayers kModels[] = {{2, 512}, {4, 1024}};
constexpr std::uint32_t kRowCounts[] = {16, 64, 256};

struct ComputeCase {
  DenseLayers model;
  DType dtype = DType::f32;
  std::uint32_t rows = 0;
  std::vector<std::vector<std::uint32_t>> cpus;  // of each device
  std::uint32_t threads = 1;
};

ComputeFigure figure_of(const Measuring& how, const ComputeCase& what) {
  const Graph graph = dense_graph(what.model, what.dtype);
  std::vector<std::unique_ptr<MeasuredDevice>> devices;
  std::vector<std::unique_ptr<DenseModel>> models;
  for (const auto& cpus : what.cpus) {
    devices.push_back(std::make_unique<MeasuredDevice>([&](AddressSpace& space) {
      return make_cpu_device(space, {.cpus = cpus, .threads = what.threads, .may_spin = true});
    }));
    models.push_back(std::make_unique<DenseModel>(*devices.back(), graph, what.rows, /*records=*/false));
  }
  const double flops = static_cast<double>(graph.training_flops()) * what.rows;
  return {.dtype = std::string{name_of(what.dtype)},
          .rows = what.rows,
          .units = what.model.units,
          .devices = static_cast<std::uint32_t>(models.size()),
          .threads = what.threads,
          .flops_per_second = rate_of(how, models, flops),
          .layers = what.model.layers};
}

}  // namespace

std::vector<ComputeFigure> measure_compute(const Measuring& how, const Topology& topology) {
  std::vector<ComputeFigure> figures;
  if (!cpu_device_available()) {
    how.say("compute  this build has no CPU device (oneDNN): not measured");
    return figures;
  }
  std::vector<std::vector<std::uint32_t>> each;  // core's CPUs
  std::vector<std::uint32_t> all;
  for (const Core& core : topology.cores) {
    if (core.cpus.empty()) continue;
    each.push_back(core.cpus);
    all.insert(all.end(), core.cpus.begin(), core.cpus.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<ComputeCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DenseLayers& model : kModels)
      for (const std::uint32_t rows : kRowCounts) {
        cases.push_back({model, dtype, rows, {each.front()}, 1});
        if (each.size() == 1) continue;
        cases.push_back({model, dtype, rows, each, 1});
        cases.push_back({model, dtype, rows, {all}, static_cast<std::uint32_t>(each.size())});
      }
  for (const ComputeCase& what : cases) {
    figures.push_back(figure_of(how, what));
    const ComputeFigure& figure = figures.back();
    how.say(fmt::format("compute  {} x {}, {}, {} rows, {} device{} of {} thread{}: {:.4g} GFLOP/s each", figure.layers,
                        figure.units, figure.dtype, figure.rows, figure.devices, figure.devices == 1 ? "" : "s",
                        figure.threads, figure.threads == 1 ? "" : "s", figure.flops_per_second.median / 1e9));
  }
  return figures;
}

}  // namespace troupe::rttopo
