#include "tools/rttopo/bench/dense_model.hpp"

#include <algorithm>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/compute/host_copies.hpp"

namespace troupe::rttopo {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint64_t kAhead = 3;  // steps that are enqueued beyond the one that is waited for

/// One piece of memory after the other, at multiples of 64 bytes.
class Pieces {
 public:
  explicit Pieces(Memory whole) : whole_(whole) {}
  Memory next(std::uint64_t size_bytes) {
    const Memory piece = slice(whole_, used_, size_bytes);
    used_ += in_lines(size_bytes);
    return piece;
  }
  static constexpr std::uint64_t in_lines(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

 private:
  const Memory whole_;
  std::uint64_t used_ = 0;
};

}  // namespace

Graph dense_graph(const DenseLayers& model, DType dtype) {
  std::vector<Layer> layers;
  for (std::uint32_t l = 0; l < model.layers; ++l) {
    layers.push_back({text("dense", l), Dense{model.units}});
    if (l + 1 < model.layers) layers.push_back({text("relu", l), Relu{}});
  }
  layers.push_back({"loss", SoftmaxCrossEntropy{}});
  return {"bench", Shape{{model.units}}, dtype, std::move(layers)};
}

void MeasuredDevice::write(const Memory& to, const std::function<void(std::span<std::byte>)>& fill) {
  HostCopies{*device_, space_, next_arena(), kPatience}.write(to, fill);
}

void MeasuredDevice::wait(Blocking& blocking, Point point) {
  const Status status =
      space_.timeline(point.line).wait(blocking, point.value, Deadline::after(kPatience), "a device's work");
  TROUPE_CHECK(status.ok(), status.code(), status.text());
}

DenseModel::DenseModel(MeasuredDevice& on, const Graph& graph, std::uint32_t rows, bool records)
    : on_(on), layout_(graph), batch_layout_(rows, graph.fields()), rows_(rows), records_(records) {
  const std::uint64_t f32_bytes = layout_.count_elements() * sizeof(float);
  const std::uint64_t bf16_bytes = layout_.count_elements() * size_bytes(DType::bf16);
  Pieces pieces{on_.take(3 * Pieces::in_lines(f32_bytes) + Pieces::in_lines(batch_layout_.size_bytes()) +
                         Pieces::in_lines(sizeof(StepSums)))};
  ReplicaMemory memory{.parameters = pieces.next(f32_bytes), .half = {}, .gradients = pieces.next(f32_bytes)};
  if (graph.dtype() == DType::bf16) memory.half = pieces.next(bf16_bytes);
  batch_ = pieces.next(batch_layout_.size_bytes());
  sums_ = pieces.next(sizeof(StepSums));
  fill_weights(graph, memory);
  fill_batch();
  replica_ = on_.device().compile(graph, layout_, batch_layout_, make_buckets({0}, graph, layout_, 0), memory);
  stream_ = on_.device().stream();
}

void DenseModel::fill_weights(const Graph& graph, const ReplicaMemory& memory) {
  std::vector<float> weights(layout_.count_elements());
  fill_initial(graph, layout_, 1, weights);
  const auto* const from = reinterpret_cast<const std::byte*>(weights.data());
  on_.write(memory.parameters, [&](std::span<std::byte> to) { std::copy_n(from, to.size(), to.data()); });
  on_.write(memory.half, [&](std::span<std::byte> to) {
    convert_elements(to.data(), DType::bf16, from, DType::f32, weights.size());
  });
}

/// Numbers as in images; labels stay 0.
void DenseModel::fill_batch() {
  const BatchLayout::Entry& image = batch_layout_.entry(kImage);
  std::vector<float> numbers(rows_ * image.row_elements());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(random_unit(1, i));
  on_.write(slice(batch_, image.offset, numbers.size() * size_bytes(image.field.dtype)), [&](std::span<std::byte> to) {
    convert_elements(to.data(), image.field.dtype, reinterpret_cast<const std::byte*>(numbers.data()), DType::f32,
                     numbers.size());
  });
}

Point DenseModel::enqueue() {
  const auto step = [this] { replica_->step(*stream_, batch_, rows_, sums_, nobody_); };
  records_ ? stream_->enqueue(programs_, step) : step();
  return stream_->mark();
}

namespace {

double seconds_of(Blocking& blocking, std::span<const std::unique_ptr<DenseModel>> models, std::uint64_t steps) {
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

}  // namespace

topology::Repeats rate_of(const Measuring& how, std::span<const std::unique_ptr<DenseModel>> models, double flops) {
  (void)seconds_of(how.blocking, models, 1);  // the first step allocates what later ones use
  const double one = std::max(1e-6, seconds_of(how.blocking, models, 1));
  const double span = std::chrono::duration<double>(how.span).count();
  const auto steps = static_cast<std::uint64_t>(std::clamp(span / one, 1.0, 1000.0));
  std::vector<double> rates;
  for (std::uint32_t r = 0; r < how.repeats; ++r) {
    how.check_stop();
    rates.push_back(flops * static_cast<double>(steps) / seconds_of(how.blocking, models, steps));
  }
  return topology::repeats_of(rates);
}

}  // namespace troupe::rttopo
