#include "devices/cuda/cuda_replica.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "runtime/model/layer_kinds.hpp"

namespace troupe::cuda {
namespace {

std::optional<Curve> curve_of(const Operation& operation) {
  if (std::holds_alternative<Relu>(operation)) return Curve::relu;
  if (std::holds_alternative<Tanh>(operation)) return Curve::tanh;
  if (std::holds_alternative<Sigmoid>(operation)) return Curve::sigmoid;
  if (std::holds_alternative<Gelu>(operation)) return Curve::gelu;
  return std::nullopt;
}

[[noreturn]] void refuse(const Graph& graph, std::uint32_t layer, const std::string& why) {
  const Layer& refused = graph.layers()[layer];
  fail(Code::unsupported,
       text("graph ", graph.name(), ", layer ", refused.name, " (", text_of(refused.operation), "): ", why,
            "; a cuda device computes one chain of dense, relu, tanh, sigmoid, gelu and flatten up to a "
            "softmax_cross_entropy"));
}

Stored stored_of(DType type) { return type == DType::bf16 ? Stored::bf16 : Stored::f32; }

std::uint64_t on_a_boundary(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

CudaReplica::CudaReplica(DeviceState& device, const Graph& graph, const Layout& layout, const BatchLayout& batch,
                         const std::vector<Bucket>& buckets, const ReplicaMemory& memory)
    : device_(device), batch_(batch), buckets_(buckets), type_(stored_of(graph.dtype())) {
  batch_.check_fits(graph);
  const std::uint64_t count = layout.count_elements();
  parameters_ =
      device.memory().address_of<const float>(memory.parameters, count * sizeof(float), "a graph's parameters");
  gradients_ = device.memory().address_of<float>(memory.gradients, count * sizeof(float), "a graph's gradients");
  if (graph.dtype() == DType::bf16)
    bf16_ = device.memory().address_of<const std::uint16_t>(memory.bf16, count * 2, "a graph's bf16 weights");
  read_fields(graph);
  read_layers(graph, layout);
  find_buckets(graph, layout);
  take_memory(graph);
}

void CudaReplica::read_fields(const Graph& graph) {
  tensors_.resize(graph.fields().size() + graph.layers().size());
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    same_.push_back(t);
    tensors_[t].width = graph.shape_of(t).count_elements();
    tensors_[t].type = type_;
  }
  for (std::uint32_t t = 0; t < graph.fields().size(); ++t) {
    if (graph.count_readers(t) == 0) continue;
    const BatchLayout::Entry& entry = batch_.entry(graph.fields()[t].name);
    fields_.push_back({t, entry.offset, entry.row_bytes()});
  }
}

void CudaReplica::read_layers(const Graph& graph, const Layout& layout) {
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const Operation& operation = graph.layers()[l].operation;
    const std::uint32_t input = graph.inputs_of(l).front(), output = graph.output_tensor(l);
    if (graph.count_readers(input) != 1) refuse(graph, l, "several layers read what it reads");
    if (input < graph.fields().size() && graph.fields()[input].dtype != graph.dtype())
      refuse(graph, l, "it reads a field that is not of the graph's type");
    Stage stage{.layer = l, .input = same_[input], .output = output};
    if (std::holds_alternative<Flatten>(operation)) {
      same_[output] = same_[input];
    } else if (const auto* const dense = std::get_if<Dense>(&operation)) {
      add_dense(graph, layout, *dense, stage);
    } else if (const auto curve = curve_of(operation)) {
      stage.curve = *curve;
      stages_.push_back(stage);
    } else if (std::holds_alternative<SoftmaxCrossEntropy>(operation) && l + 1 == graph.layers().size()) {
      add_loss(graph, l);
    } else {
      refuse(graph, l, "it has no kernels for that");
    }
  }
}

void CudaReplica::add_dense(const Graph& graph, const Layout& layout, const Dense& dense, Stage& stage) {
  const Shape& read = graph.shape_of(graph.inputs_of(stage.layer).front());
  stage.is_dense = true;
  stage.inner = dense.flatten ? read.count_elements() : read.extents.back();
  stage.units = dense.units;
  stage.has_bias = dense.bias;
  bool first = true;
  for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
    if (graph.parameters()[p].layer != stage.layer) continue;
    (first ? stage.weight : stage.bias) = layout.entries()[p].first;
    first = false;
  }
  stages_.push_back(stage);
}

/// The last dense layer gives its loss f32, whatever else is stored.
void CudaReplica::add_loss(const Graph& graph, std::uint32_t layer) {
  loss_ = std::get<SoftmaxCrossEntropy>(graph.layers()[layer].operation);
  logits_ = same_[graph.inputs_of(layer).front()];
  labels_ = graph.inputs_of(layer).back();
  if (stages_.empty()) refuse(graph, layer, "nothing is trained before it");
  const std::uint64_t labels = graph.shape_of(labels_).count_elements();
  rows_of_logits_ = labels;
  classes_ = static_cast<std::uint32_t>(tensors_[logits_].width / labels);
  if (stages_.back().is_dense) tensors_[logits_].type = Stored::f32;
}

void CudaReplica::find_buckets(const Graph& graph, const Layout& layout) {
  std::vector<bool> found(buckets_.size());
  for (Stage& stage : stages_) {
    for (std::uint32_t b = 0; b < buckets_.size() && stage.is_dense; ++b) {
      const std::uint64_t first = buckets_[b].first_in_layout(), end = first + buckets_[b].count;
      const auto has = [&](std::uint64_t element) { return element >= first && element < end; };
      if (found[b] || !(has(stage.weight) || (stage.has_bias && has(stage.bias)))) continue;
      found[b] = true;
      stage.buckets.push_back(b);
    }
  }
  std::uint64_t covered = 0;
  for (const Bucket& bucket : buckets_) {
    last_layers_.push_back(first_layer(graph, layout, bucket));
    covered += bucket.count;
  }
  TROUPE_CHECK(covered == layout.count_elements(), Code::invalid, "the buckets cover ", covered, " of ",
               layout.count_elements(), " elements of graph ", graph.name());
}

/// Gradients have places of their own, but that of a curve is computed where the gradient to its output stands.
void CudaReplica::take_memory(const Graph& graph) {
  const std::uint64_t rows = batch_.rows();
  std::uint64_t bytes = 0;
  const auto take = [&](std::uint64_t size) { return std::exchange(bytes, bytes + on_a_boundary(size)); };
  std::vector<std::uint64_t> places(tensors_.size()), gradients(tensors_.size(), ~std::uint64_t{0});
  for (const Field& field : fields_) places[field.tensor] = take(rows * field.row_bytes);
  for (const Stage& stage : stages_) places[stage.output] = take(rows * tensors_[stage.output].width * 4);
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    if (gradients[stage->output] == ~std::uint64_t{0})
      gradients[stage->output] = take(rows * tensors_[stage->output].width * bytes_of(type_));
    if (!stage->is_dense && graph.is_trained(stage->input)) gradients[stage->input] = gradients[stage->output];
  }
  const std::uint64_t losses = take(rows * rows_of_logits_ * sizeof(RowLoss));
  memory_ = DeviceMemory{device_.gpu(), bytes};
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    tensors_[t].at = memory_.at() + places[t];
    if (gradients[t] != ~std::uint64_t{0}) tensors_[t].gradient = memory_.at() + gradients[t];
  }
  row_losses_ = memory_.as<RowLoss>(losses);
}

CudaStream& CudaReplica::own(Stream& stream, const Memory& batch, std::uint32_t rows) const {
  auto* const found = dynamic_cast<CudaStream*>(&stream);
  TROUPE_CHECK(found != nullptr && &found->device() == &device_, Code::invalid,
               "a cuda replica was given another device's stream");
  TROUPE_CHECK(batch.size_bytes == batch_.size_bytes(), Code::invalid, "a batch of ", batch.size_bytes,
               " bytes was given, this replica takes ", batch_.size_bytes());
  TROUPE_CHECK(rows <= batch_.rows(), Code::invalid, rows, " rows of a batch with room for ", batch_.rows());
  return *found;
}

void CudaReplica::take_batch(CudaStream& stream, Memory batch, std::uint32_t rows) {
  const std::byte* const from = device_.memory().address(batch);
  for (const Field& field : fields_) {
    TakeBatchArgs args{};
    args.to = tensors_[field.tensor].at;
    args.offset = field.offset;
    args.size_bytes = rows * field.row_bytes;
    args.given.own.from = from;
    stream.launch(args, args.size_bytes / 2);
  }
}

Matrix CudaReplica::weights(const Stage& stage, std::uint64_t row_stride, std::uint64_t column_stride) const {
  if (bf16_ != nullptr) return {bf16_ + stage.weight, row_stride, column_stride, Stored::bf16, 0};
  return {parameters_ + stage.weight, row_stride, column_stride, Stored::f32, 0};
}

namespace {

void multiply(CudaStream& stream, MultiplyArgs& args) {
  const auto tiles = [](std::uint64_t extent) { return (extent + kTile - 1) / kTile; };
  stream.launch(args, tiles(args.count_rows) * tiles(args.count_columns) * kBlockThreads);
}

}  // namespace

void CudaReplica::forward(CudaStream& stream, const Stage& stage, std::uint32_t rows) {
  const Tensor &input = tensors_[stage.input], &output = tensors_[stage.output];
  if (!stage.is_dense) {
    ActivateArgs args{};
    args.to = output.at, args.to_type = output.type;
    args.from = input.at, args.from_type = input.type;
    args.curve = stage.curve, args.count = rows * output.width;
    return stream.launch(args, args.count);
  }
  MultiplyArgs args{};
  args.to = output.at, args.to_type = output.type;
  if (stage.has_bias) args.bias = parameters_ + stage.bias;
  args.a = {input.at, stage.inner, 1, input.type, 0};
  args.b = weights(stage, 1, stage.inner);
  args.count_rows = rows * (input.width / stage.inner);
  args.count_columns = stage.units;
  args.count_inner = stage.inner;
  multiply(stream, args);
}

void CudaReplica::backward(CudaStream& stream, const Stage& stage, std::uint32_t rows) {
  const Tensor &input = tensors_[stage.input], &output = tensors_[stage.output];
  if (!stage.is_dense) {
    const Tensor& kept = stage.curve == Curve::gelu ? input : output;
    ActivateBackArgs args{};
    args.gradient = output.gradient, args.gradient_type = type_;
    args.kept = kept.at, args.kept_type = kept.type;
    args.curve = stage.curve, args.count = rows * output.width;
    return stream.launch(args, args.count);
  }
  const std::uint64_t count_rows = rows * (input.width / stage.inner);
  MultiplyArgs to_weights{};
  to_weights.to = gradients_ + stage.weight;
  to_weights.a = {output.gradient, 1, stage.units, type_, 0};
  to_weights.b = {input.at, stage.inner, 1, input.type, 0};
  to_weights.count_rows = stage.units;
  to_weights.count_columns = stage.inner;
  to_weights.count_inner = count_rows;
  multiply(stream, to_weights);
  if (stage.has_bias) {
    SumRowsArgs to_bias{nullptr, gradients_ + stage.bias, output.gradient, count_rows, stage.units, type_, 0};
    stream.launch(to_bias, stage.units);
  }
  if (input.gradient == nullptr) return;
  MultiplyArgs to_input{};
  to_input.to = input.gradient, to_input.to_type = type_;
  to_input.a = {output.gradient, stage.units, 1, type_, 0};
  to_input.b = weights(stage, stage.inner, 1);
  to_input.count_rows = count_rows;
  to_input.count_columns = stage.inner;
  to_input.count_inner = stage.units;
  multiply(stream, to_input);
}

void CudaReplica::loss(CudaStream& stream, std::uint32_t rows, Memory sums, bool trains) {
  CrossEntropyArgs args{};
  args.rows = row_losses_;
  args.logits = tensors_[logits_].at, args.logits_type = tensors_[logits_].type;
  args.labels = reinterpret_cast<const std::int32_t*>(tensors_[labels_].at);
  if (trains) args.gradient = tensors_[logits_].gradient, args.gradient_type = type_;
  args.count_rows = rows * rows_of_logits_;
  args.classes = classes_, args.ignore = loss_.ignore;
  args.weight = static_cast<float>(loss_.weight), args.smoothing = static_cast<float>(loss_.smoothing);
  stream.launch(args, args.count_rows);
  SumLossesArgs total{};
  total.rows = row_losses_, total.count_rows = args.count_rows;
  total.weight = static_cast<double>(args.weight), total.adds = trains ? 0 : 1;
  total.given.own.sums = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "a step's sums");
  stream.launch_blocks(total, 1);
}

void CudaReplica::step_without_rows(CudaStream& stream, Memory sums, BucketSink& sink) {
  for (const Stage& stage : stages_)
    for (const std::uint32_t b : stage.buckets) sink.acquire(buckets_[b], stream);
  for (const Bucket& bucket : buckets_)
    stream.clear_at(reinterpret_cast<std::byte*>(gradients_ + bucket.first_in_layout()), bucket.count * sizeof(float));
  SumLossesArgs none{};
  none.given.own.sums = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "a step's sums");
  stream.launch_blocks(none, 1);
  for (const Bucket& bucket : buckets_) sink.ready(bucket, stream);
}

void CudaReplica::step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) {
  CudaStream& queue = own(stream, batch, rows);
  if (rows == 0) return step_without_rows(queue, sums, sink);
  take_batch(queue, batch, rows);
  for (const Stage& stage : stages_) {
    for (const std::uint32_t b : stage.buckets) sink.acquire(buckets_[b], stream);
    forward(queue, stage, rows);
  }
  loss(queue, rows, sums, true);
  std::size_t next = 0;
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    backward(queue, *stage, rows);
    while (next < buckets_.size() && last_layers_[next] == stage->layer) sink.ready(buckets_[next++], stream);
  }
}

void CudaReplica::evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) {
  CudaStream& queue = own(stream, batch, rows);
  if (rows == 0) return;
  take_batch(queue, batch, rows);
  for (const Stage& stage : stages_) forward(queue, stage, rows);
  loss(queue, rows, sums, false);
}

}  // namespace troupe::cuda
