#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "devices/cpu/cpu_device.hpp"
#include "runtime/base/random.hpp"
#include "tools/rttopo/bench/measures.hpp"

namespace troupe::rttopo {
namespace {

using topology::ComputeFigure;

/// Layers of a model, each with as many inputs as outputs.
struct DenseLayers {
  std::uint32_t layers = 0;
  std::uint32_t units = 0;
};
// Weights and gradients take 4 MB and 34 MB in f32: what fits a core's share of the caches is computed faster.
constexpr DenseLayers kModels[] = {{2, 512}, {4, 1024}};
constexpr std::uint32_t kRowCounts[] = {16, 64, 256};
constexpr std::chrono::seconds kStepPatience{60};
constexpr std::uint64_t kAhead = 3;  // steps that are enqueued beyond the one that is waited for

Graph dense_graph(const DenseLayers& model, DType dtype) {
  std::vector<Layer> layers;
  for (std::uint32_t l = 0; l < model.layers; ++l) {
    layers.push_back({text("dense", l), Dense{model.units}});
    if (l + 1 < model.layers) layers.push_back({text("relu", l), Relu{}});
  }
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return {"bench", Shape{{model.units}}, dtype, std::move(layers)};
}

struct NoExchange final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

/// A model on its own device, in a job of one rank.
class DenseModel {
 public:
  DenseModel(const Graph& graph, std::uint32_t rows, std::vector<std::uint32_t> cpus, std::uint32_t threads)
      : layout_(graph), batch_layout_(rows, graph.fields()), rows_(rows) {
    const std::uint64_t elements = layout_.count_elements();
    arena_ = Arena::create(arena_id(Peer{0}, 1),
                           elements * (2 * sizeof(float) + 2) + batch_layout_.size_bytes() + (std::uint64_t{1} << 16));
    space_.map(arena_);
    ReplicaMemory memory{arena_->allocate(elements * sizeof(float)), {}, arena_->allocate(elements * sizeof(float))};
    float* const parameters = space_.address_of<float>(memory.parameters);
    fill_initial(graph, layout_, 1, {parameters, elements});
    if (graph.dtype() == DType::bf16) {
      memory.bf16 = arena_->allocate(elements * size_bytes(DType::bf16));
      convert_elements(space_.address(memory.bf16), DType::bf16, space_.address(memory.parameters), DType::f32,
                       elements);
    }
    batch_ = arena_->allocate(batch_layout_.size_bytes());
    sums_ = arena_->allocate(sizeof(StepSums));
    fill_batch();
    device_ = make_cpu_device(space_, {.cpus = std::move(cpus), .threads = threads, .may_spin = true});
    replica_ = device_->compile(graph, layout_, batch_layout_, make_buckets({0}, graph, layout_, 0), memory);
    stream_ = device_->stream();
  }

  Point enqueue() {
    replica_->step(*stream_, batch_, rows_, sums_, nobody_);
    return stream_->mark();
  }
  void wait(Blocking& blocking, Point point) {
    const Status status = space_.timeline(point.line)
                              .wait(blocking, point.value, Deadline::after(kStepPatience), "a step of dense layers");
    TROUPE_CHECK(status.ok(), status.code(), status.text());
  }

 private:
  /// Fills the batch with numbers as in images; labels stay 0.
  void fill_batch() {
    const BatchLayout::Entry& image = batch_layout_.entry(kImage);
    std::vector<float> numbers(rows_ * image.row_elements());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(random_unit(1, i));
    convert_elements(space_.address(batch_) + image.offset, image.field.dtype,
                     reinterpret_cast<const std::byte*>(numbers.data()), DType::f32, numbers.size());
  }

  const Layout layout_;
  const BatchLayout batch_layout_;
  const std::uint32_t rows_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  Memory batch_, sums_;
  NoExchange nobody_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Stream> stream_;
};

using Models = std::vector<std::unique_ptr<DenseModel>>;

/// The seconds in which every model takes `steps` steps, all at the same time.
double seconds_of(Blocking& blocking, const Models& models, std::uint64_t steps) {
  std::vector<std::vector<Point>> ends(models.size());
  const auto begun = Clock::now();
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (std::size_t m = 0; m < models.size(); ++m) {
      if (step >= kAhead) models[m]->wait(blocking, ends[m][step - kAhead]);
      ends[m].push_back(models[m]->enqueue());
    }
  }
  for (std::size_t m = 0; m < models.size(); ++m) models[m]->wait(blocking, ends[m].back());
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

struct ComputeCase {
  DenseLayers model;
  DType dtype = DType::f32;
  std::uint32_t rows = 0;
  std::vector<std::vector<std::uint32_t>> cpus;  // of each device
  std::uint32_t threads = 1;
};

ComputeFigure figure_of(const Measuring& how, const ComputeCase& what) {
  const Graph graph = dense_graph(what.model, what.dtype);
  Models models;
  for (const auto& cpus : what.cpus)
    models.push_back(std::make_unique<DenseModel>(graph, what.rows, cpus, what.threads));
  const double flops = static_cast<double>(graph.training_flops()) * what.rows;
  (void)seconds_of(how.blocking, models, 1);  // the first step allocates what later ones use
  const double one = std::max(1e-6, seconds_of(how.blocking, models, 1));
  const double span = std::chrono::duration<double>(how.span).count();
  const auto steps = static_cast<std::uint64_t>(std::clamp(span / one, 1.0, 1000.0));
  std::vector<double> rates;
  for (std::uint32_t r = 0; r < how.repeats; ++r) {
    how.check_stop();
    rates.push_back(flops * static_cast<double>(steps) / seconds_of(how.blocking, models, steps));
  }
  return {.dtype = std::string{name_of(what.dtype)},
          .rows = what.rows,
          .units = what.model.units,
          .devices = static_cast<std::uint32_t>(models.size()),
          .threads = what.threads,
          .flops_per_second = topology::repeats_of(rates),
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
