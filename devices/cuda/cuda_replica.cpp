#include "devices/cuda/cuda_replica.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "runtime/model/curves_before_pools.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/fused_relu_gradients.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "runtime/model/reader_counts.hpp"
#include "runtime/model/shared_gradients.hpp"

namespace troupe::cuda {
namespace {

bool has_weights(const Operation& operation) noexcept {
  return std::holds_alternative<Dense>(operation) || std::holds_alternative<Conv2d>(operation);
}

/// A layer's launches in a profiler, from construction to destruction.
class LayerRange {
 public:
  LayerRange(CudaStream& stream, const char* phase, const std::string& layer) : stream_(stream) {
    if (stream_.is_profiled()) stream_.begin_range(text(phase, ' ', layer));
  }
  ~LayerRange() {
    if (stream_.is_profiled()) stream_.end_range();
  }
  LayerRange(const LayerRange&) = delete;
  LayerRange& operator=(const LayerRange&) = delete;

 private:
  CudaStream& stream_;
};

}  // namespace

CudaReplica::CudaReplica(DeviceState& device, const Graph& graph, const Layout& layout, const BatchLayout& batch,
                         const std::vector<Bucket>& buckets, const ReplicaMemory& memory)
    : device_(device), batch_(batch), buckets_(buckets), type_(stored_of(graph.dtype())) {
  batch_.check_fits(graph);
  TROUPE_CHECK(memory.gather == nullptr || gathered_bytes(graph) == 0, Code::unsupported, "graph ", graph.name(),
               ": a cuda device gathers nothing of other ranks, which its synchronized batch norms need");
  read_tensors(graph);
  read_layers(graph);
  read_parameters(graph, layout, memory);
  find_buckets(graph, layout);
  find_losses();
  find_relus(graph);
  find_norms(graph);
  find_rooms(graph);
  take_memory(graph, libraries_for(memory));
  connect();
  find_orders(graph, layout);
  prepare_stages();
}

void CudaReplica::read_tensors(const Graph& graph) {
  tensors_.resize(graph.fields().size() + graph.layers().size());
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    same_.push_back(t);
    tensors_[t].shape = graph.shape_of(t);
    tensors_[t].type = tensors_[t].gradient_type = type_;
    tensors_[t].is_field = t < graph.fields().size();
  }
  for (std::uint32_t t = 0; t < graph.fields().size(); ++t) {
    if (graph.count_readers(t) == 0 && graph.fields()[t].name != kSampleKey) continue;
    const BatchLayout::Entry& entry = batch_.entry(graph.fields()[t].name);
    const bool makes_f16 = type_ == Stored::f16 && entry.field.dtype == DType::f32;
    fields_.push_back({t, entry.offset, entry.row_bytes(), makes_f16});
  }
}

/// What only losses read is f32, whatever else is stored. A curve that a max pool applies puts out what it reads.
void CudaReplica::read_layers(const Graph& graph) {
  std::vector<bool> others_read(tensors_.size()), is_moved(graph.layers().size());
  for (const CurveBeforePool& moved : curves_before_pools(graph)) is_moved[moved.curve] = true;
  for (std::uint32_t l = 0; l < graph.layers().size(); ++l) {
    const std::uint32_t output = graph.output_tensor(l);
    Stage& stage = stages_.emplace_back();
    stage.name = graph.layers()[l].name;
    stage.operation = graph.layers()[l].operation;
    stage.read = graph.inputs_of(l), stage.written = output;
    stage.work.layer = l;
    stage.is_loss = kind_of(stage.operation).is_loss;
    stage.has_backward = !stage.is_loss && graph.is_trained(output);
    if (std::holds_alternative<Flatten>(stage.operation) || is_moved[l]) {
      same_[output] = same_[stage.read.front()];
      stage.has_backward = false, stage.is_fused_forward = is_moved[l];
    } else if (!stage.is_loss) {
      for (const std::uint32_t t : stage.read) others_read[same_[t]] = true;
    }
  }
  for (const CurveBeforePool& moved : curves_before_pools(graph))
    stages_[moved.pool].work.curve = curve_of(stages_[moved.curve].operation);
  for (Stage& stage : stages_)
    if (stage.is_loss && !tensors_[same_[stage.read[0]]].is_field && !others_read[same_[stage.read[0]]])
      tensors_[same_[stage.read[0]]].type = Stored::f32;
}

/// Weights of a bf16 or f16 graph are read in that type, biases and scales as f32.
void CudaReplica::read_parameters(const Graph& graph, const Layout& layout, const ReplicaMemory& memory) {
  const std::uint64_t count = layout.count_elements();
  MemoryMap& map = device_.memory();
  const auto* const values = map.address_of<const float>(memory.parameters, count * sizeof(float), "parameters");
  const std::uint16_t* const half =
      type_ != Stored::f32 ? map.address_of<const std::uint16_t>(memory.half, count * 2, "weights in 16 bits")
                           : nullptr;
  if (memory.loss_scale.size_bytes != 0)
    loss_scale_ = map.address_of<const LossScaleState>(memory.loss_scale, sizeof(LossScaleState), "a loss scale");
  owns_gradients_ = memory.owns_gradients;
  gradients_ = map.address_of<float>(memory.gradients, count * sizeof(float), "gradients");
  for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    const Layout::Entry& at = layout.entries()[p];
    LayerParameter found{values + at.first, nullptr, gradients_ + at.first, at.count, Stored::f32};
    if (half != nullptr) found.half = half + at.first;
    if (half != nullptr && parameter.extents.size() > 1) found.values = half + at.first, found.type = type_;
    stages_[parameter.layer].work.parameters.push_back(found);
  }
}

void CudaReplica::find_buckets(const Graph& graph, const Layout& layout) {
  std::vector<bool> found(buckets_.size());
  for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
    const std::uint64_t at = layout.entries()[p].first;
    for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
      const std::uint64_t first = buckets_[b].first_in_layout();
      if (found[b] || at < first || at >= first + buckets_[b].count) continue;
      found[b] = true;
      stages_[graph.parameters()[p].layer].buckets.push_back(b);
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

void CudaReplica::find_losses() {
  const auto is_loss = [](const Stage& stage) { return stage.is_loss; };
  std::find_if(stages_.begin(), stages_.end(), is_loss)->work.is_first_loss = true;
  stages_.back().work.is_last_loss = true;
  for (const Stage& stage : stages_)
    if (std::holds_alternative<SoftmaxCrossEntropy>(stage.operation))
      losses_of_row_ = std::max(losses_of_row_, tensors_[stage.read[1]].width());
}

void CudaReplica::find_relus(const Graph& graph) {
  const std::vector<std::uint32_t> readers = reader_counts(graph);
  std::vector<Stage*> writers(readers.size());  // by tensor
  for (Stage& stage : stages_)
    if (!stage.is_loss) writers[stage.written] = &stage;
  for (Stage& reader : stages_) {
    if (!std::holds_alternative<Relu>(reader.operation) || reader.is_fused_forward) continue;
    Stage* const writer = writers[reader.read[0]];
    if (writer != nullptr && readers[reader.read[0]] == 1) writer->relu = &reader;
  }
  const SharedGradients shared{graph};
  for (const std::uint32_t t : same_) same_gradients_.push_back(shared.by_tensor()[t]);
  for (const FusedReluGradient& fused : fused_relu_gradients(graph)) {
    stages_[fused.relu].after = &stages_[fused.after];
    same_gradients_[stages_[fused.before].written] = stages_[fused.relu].written;
  }
}

/// A norm is computed where the sum is, since it needs the other term, and the sum's gradient where the ReLU's is.
void CudaReplica::find_norms(const Graph& graph) {
  is_unwritten_.resize(tensors_.size());
  for (const FusedNorm& fused : fused_norms(graph)) {
    Stage &norm = stages_[fused.norm], &relu = stages_[fused.relu];
    norm.relu = nullptr, norm.work.relu = &tensors_[relu.written];
    relu.is_fused_forward = relu.is_fused_backward = true;
    is_unwritten_[norm.written] = true;
    if (!fused.sum) continue;
    Stage& sum = stages_[fused.sum->layer];
    sum.relu = nullptr, sum.norm = &norm;
    norm.is_fused_forward = true, norm.work.added = &tensors_[fused.sum->other];
    is_unwritten_[sum.written] = true;
  }
}

/// None where weights are not in the GPU's memory: libraries read them from there no faster than kernels of ours do.
MathLibraries CudaReplica::libraries_for(const ReplicaMemory& memory) const {
  const Memory& weights = type_ != Stored::f32 ? memory.half : memory.parameters;
  if (device_.space().region(weights.arena).kind != MemoryKind::device) return {};
  return {device_.libraries().products.get(), device_.libraries().dnn.get()};
}

void CudaReplica::find_rooms(const Graph& graph) {
  for (Stage& stage : stages_) {
    for (const std::uint32_t t : stage.read) stage.work.inputs.push_back(&tensors_[t]);
    if (!stage.is_loss) stage.work.output = &tensors_[stage.written];
    try {
      stage.room = room_for(stage.work, stage.operation, batch_.rows());
    } catch (const Error& error) {
      fail(error.code(), text("graph ", graph.name(), ", layer ", graph.layers()[stage.work.layer].name, " (",
                              text_of(stage.operation), "): ", error.what()));
    }
  }
}

void CudaReplica::use_gradients(const Graph& graph, std::vector<Use>& uses) const {
  std::uint32_t turn = 0;
  const auto take_turn = [&](std::uint32_t tensor) {
    Use& use = uses[same_gradients_[tensor]];
    if (!graph.is_trained(tensor)) return;
    if (!use.is_used) use.first = turn;
    use.is_used = true, use.last = turn;
  };
  for (const Stage& stage : stages_) {
    if (stage.is_loss) take_turn(stage.read[0]), ++turn;
  }
  const Stage* read_aside = nullptr;  // the last one with weights, whose gradient is read until the next one's turn
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage, ++turn) {
    if (!stage->has_backward) continue;
    take_turn(stage->written);
    for (const std::uint32_t t : stage->read) take_turn(t);
    if (!has_weights(stage->operation)) continue;
    if (read_aside != nullptr) take_turn(read_aside->written);
    read_aside = &*stage;
  }
  if (read_aside != nullptr) --turn, take_turn(read_aside->written);
}

/// Each at the first place that no other one has in its time. Gives the bytes that all take.
std::uint64_t CudaReplica::place_gradients(std::vector<Use>& uses) const {
  std::vector<Use*> order, placed;
  for (Use& use : uses)
    if (use.is_used) order.push_back(&use);
  std::stable_sort(order.begin(), order.end(), [](const Use* a, const Use* b) { return a->bytes > b->bytes; });
  std::uint64_t end = 0;
  for (Use* const use : order) {
    for (const Use* const other : placed) {  // by place
      if (other->last < use->first || other->first > use->last) continue;
      if (use->place + use->bytes > other->place && use->place < other->place + other->bytes)
        use->place = other->place + other->bytes;
    }
    end = std::max(end, use->place + use->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), use,
                                   [](const Use* a, const Use* b) { return a->place < b->place; }),
                  use);
  }
  return end;
}

void CudaReplica::take_memory(const Graph& graph, const MathLibraries& libraries) {
  const std::uint64_t rows = batch_.rows();
  std::uint64_t bytes = 0;
  const auto take = [&](std::uint64_t size) { return std::exchange(bytes, bytes + on_a_boundary(size)); };
  std::vector<std::uint64_t> places(tensors_.size()), kept;
  for (const Field& field : fields_) places[field.tensor] = take(rows * field.row_bytes);
  LayerRoom most;
  for (const Stage& stage : stages_) {
    if (!stage.is_loss && same_[stage.written] == stage.written && !is_unwritten_[stage.written])
      places[stage.written] = take(rows * tensors_[stage.written].width() * bytes_of(tensors_[stage.written].type));
    const bool has_mask = stage.after != nullptr && libraries.products != nullptr;
    const std::uint64_t needed =
        libraries.dnn != nullptr ? std::max(stage.room.kept, stage.room.dnn_kept) : stage.room.kept;
    kept.push_back(take(has_mask ? relu_mask_bytes(rows, tensors_[stage.written].shape) : needed));
    most.scratch = std::max(most.scratch, stage.room.scratch);
    most.math.summed_columns = std::max(most.math.summed_columns, stage.room.math.summed_columns);
    most.math.landed_bytes = std::max(most.math.landed_bytes, stage.room.math.landed_bytes);
  }
  std::vector<Use> uses(tensors_.size());
  for (std::uint32_t t = 0; t < tensors_.size(); ++t)
    uses[t].bytes = on_a_boundary(rows * tensors_[t].width() * bytes_of(type_));
  use_gradients(graph, uses);
  const std::uint64_t gradients = take(place_gradients(uses)), samples = take(sizeof *samples_);
  math_ = std::make_unique<Math>(device_.gpu(), libraries, most.math, owns_gradients_);
  const std::uint64_t scratch = take(most.scratch), for_math = take(math_->scratch_bytes());
  const std::uint64_t each = on_a_boundary(batch_.size_bytes()), announced = take(uploads_.size() * each);
  memory_ = DeviceMemory{device_.gpu(), bytes};
  for (std::size_t u = 0; u < uploads_.size(); ++u) uploads_[u].at = memory_.at() + announced + u * each;
  upload_stream_ = std::make_unique<CudaStream>(device_);
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    if (!is_unwritten_[t]) tensors_[t].at = memory_.at() + places[t];
    if (const Use& use = uses[same_gradients_[t]]; use.is_used)
      tensors_[t].gradient = memory_.at() + gradients + use.place;
  }
  for (std::size_t l = 0; l < stages_.size(); ++l) stages_[l].work.kept = memory_.at() + kept[l];
  samples_ = memory_.as<std::uint64_t>(samples);
  scratch_ = memory_.at() + scratch;
  math_->take_scratch(memory_.at() + for_math, {scratch_, most.scratch});
  for (const Field& field : fields_)
    if (graph.fields()[field.tensor].name == kSampleKey) keys_ = memory_.as<std::int32_t>(places[field.tensor]);
}

/// Whoever has the first turn writes a gradient, the others add to it.
void CudaReplica::connect() {
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    const Tensor& same = tensors_[same_[t]];
    tensors_[t].at = same.at, tensors_[t].gradient = same.gradient;
    tensors_[t].type = same.type, tensors_[t].gradient_type = same.gradient_type;
  }
  std::vector<bool> written(tensors_.size());
  const auto give = [&](Stage& stage, std::uint32_t tensor) {
    const Tensor& to = tensors_[tensor];
    const bool adds = to.gradient != nullptr && written[same_[tensor]];
    written[same_[tensor]] = true;
    stage.work.gradients.push_back({to.gradient, to.gradient_type, adds ? 1U : 0U});
  };
  for (Stage& stage : stages_)
    if (stage.is_loss) give(stage, stage.read[0]);
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage)
    for (std::size_t n = 0; stage->has_backward && n < stage->read.size(); ++n) give(*stage, stage->read[n]);
}

/// Weights of convolutions are put in another order when their bucket is acquired, in one kernel with the others of it.
void CudaReplica::find_orders(const Graph& graph, const Layout& layout) {
  std::vector<Stage*> acquirers(buckets_.size());
  for (Stage& stage : stages_)
    for (const std::uint32_t b : stage.buckets) acquirers[b] = &stage;
  std::vector<bool> has_weights(stages_.size());
  for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
    const Stage& stage = stages_[graph.parameters()[p].layer];
    if (has_weights[stage.work.layer]) continue;  // they are its first parameter
    has_weights[stage.work.layer] = true;
    const auto order = kept_weights(stage.work, stage.operation);
    if (!order) continue;
    const std::uint64_t at = layout.entries()[p].first;
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (const std::uint64_t first = buckets_[b].first_in_layout(); at >= first && at < first + buckets_[b].count)
        acquirers[b]->orders.push_back(*order);
  }
}

void CudaReplica::order_all_weights(CudaStream& stream) const {
  WeightOrders all;
  for (const Stage& stage : stages_) all.insert(all.end(), stage.orders.begin(), stage.orders.end());
  order_weights(stream, all, {});
}

/// Gradients that libraries have left in the replica's memory, of all layers since the last time.
void CudaReplica::bring_landed(CudaStream& stream, const Pass& pass) {
  order_weights(stream, landed_, pass.gradient_factor);
  landed_.clear();
}

/// Before anything waits: libraries choose, load and take memory for whole batches.
void CudaReplica::prepare_stages() {
  for (const Stage& stage : stages_) {
    const Tensor* const relu = stage.relu != nullptr ? stage.relu->work.output : nullptr;
    prepare(stage.work, stage.operation, relu, static_cast<std::uint32_t>(batch_.rows()), stage.has_backward, *math_);
  }
  if (device_.libraries().dnn != nullptr) device_.libraries().dnn->save_choices();
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

/// A copy over the bus, of few blocks: they are on the GPU for long, and leave room for the step's kernels.
void CudaReplica::announce(Memory batch, Point valid_from) {
  if (batch.size_bytes != batch_.size_bytes() || device_.space().region(batch.arena).kind == MemoryKind::device) return;
  constexpr std::uint32_t kBlocks = 32;
  for (Upload& upload : uploads_)  // whose step was never enqueued
    if (upload.batch == batch) upload.batch = {};
  Upload& to = uploads_[next_upload_++ % uploads_.size()];
  upload_stream_->wait(to.free_from);
  upload_stream_->wait(valid_from);
  CopyArgs args{nullptr, to.at, device_.memory().address(batch), batch.size_bytes};
  upload_stream_->launch(args, (args.size_bytes + 15) / 16, kBlocks);
  to.batch = batch, to.there = upload_stream_->mark();
}

/// Where the step finds its batch.
const std::byte* CudaReplica::wait_for_announced(CudaStream& stream, const Memory& batch) {
  for (Upload& upload : uploads_) {
    if (upload.batch != batch) continue;
    stream.wait(upload.there);
    upload.batch = {}, upload.free_from = stream.next_mark();
    return upload.at;
  }
  return device_.memory().address(batch);
}

void CudaReplica::take_batch(CudaStream& stream, const std::byte* batch, std::uint32_t rows) {
  TakeFieldsArgs args{};
  args.given.own.from = batch;
  std::uint64_t most = 0;
  const auto launch = [&] {
    if (args.count != 0) stream.launch(args, most / 2);
    args.count = most = 0;
  };
  for (const Field& field : fields_) {
    if (args.count == kMostFields) launch();
    const std::uint64_t size_bytes = rows * field.row_bytes;
    args.fields[args.count++] = {tensors_[field.tensor].at, field.offset, size_bytes, field.makes_f16 ? 1U : 0U, 0};
    most = std::max(most, size_bytes);
  }
  launch();
}

/// The scale is of the mean loss, and gradients are of the sum: a power of two between them costs no bits.
Pass CudaReplica::pass_on(CudaStream& stream, std::uint32_t rows, Memory sums, bool trains) {
  landed_.clear();
  read_aside_ = nullptr;
  const auto losses = static_cast<float>(std::bit_ceil(rows * losses_of_row_));
  const bool scales = trains && loss_scale_ != nullptr;
  return {.stream = stream,
          .math = *math_,
          .rows = rows,
          .training = trains,
          .scratch = scratch_,
          .keys = trains ? keys_ : nullptr,
          .samples = samples_,
          .loss_factor = scales ? Factor{&loss_scale_->now.scale, 1 / losses} : Factor{},
          .gradient_factor = scales ? Factor{&loss_scale_->now.inverse, losses} : Factor{},
          .landed = landed_,
          .sums = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "a step's sums")};
}

void CudaReplica::step_without_rows(CudaStream& stream, Memory sums, BucketSink& sink) {
  for (const Stage& stage : stages_)
    for (const std::uint32_t b : stage.buckets) sink.acquire(buckets_[b], stream);
  stream.begin_work(WorkKind::compute, "no rows", /*begins_batch=*/true);
  for (const Bucket& bucket : buckets_)
    stream.clear_at(reinterpret_cast<std::byte*>(gradients_ + bucket.first_in_layout()), bucket.count * sizeof(float));
  NoLossArgs none{};
  none.given.own.sums = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "a step's sums");
  stream.launch_blocks(none, 1);
  for (const Bucket& bucket : buckets_) sink.ready(bucket, stream);
}

/// The layer before a ReLU whose gradient is fused, with that ReLU, and its mask, where the one after it will give the
/// gradient by the mask. False: nothing is done.
bool CudaReplica::forward_with_mask(Stage& stage, const Pass& pass) {
  Stage& relu = *stage.relu;
  if (relu.after == nullptr) return false;
  LayerWork& after = relu.after->work;
  after.relu_mask = nullptr;
  if (!pass.training || !has_relu_gradient(std::get<Dense>(relu.after->operation), after, relu.work.kept, pass) ||
      !forward_with_relu(stage.operation, stage.work, *relu.work.output, relu.work.kept, pass))
    return false;
  after.relu_mask = relu.work.kept;
  return true;
}

/// A product and the ReLU behind it are one call of a library where it has that. Then the tensor between them is not
/// written, and nobody reads it: a ReLU's backward pass reads what it has put out.
void CudaReplica::forward_of(Stage& stage, const Pass& pass) {
  if (stage.is_done || stage.is_fused_forward) return;
  if (stage.norm != nullptr) return forward(stage.norm->work, stage.norm->operation, pass);
  if (stage.relu != nullptr) {
    stage.relu->is_done = forward_with_mask(stage, pass) ||
                          forward_with_relu(stage.operation, stage.work, *stage.relu->work.output, nullptr, pass);
    if (stage.relu->is_done) return;
  }
  forward(stage.work, stage.operation, pass);
}

/// Of a ReLU with a fused gradient the layer after it has given the gradient already.
void CudaReplica::backward_of(const Stage& stage, const Pass& pass) {
  if (stage.is_fused_backward || (stage.after != nullptr && stage.after->work.relu_mask != nullptr)) return;
  if (stage.norm != nullptr) backward_of_sum(stage.norm->work, *stage.work.output, pass);
  backward(stage.work, stage.operation, pass);
}

/// The gradient to a layer's weights is computed while the main lane goes on, until the next layer with weights, or one
/// that adds to the gradient to the first one's output, or replaces it: a sum has that of its terms.
void CudaReplica::join_weights_before(const Stage& stage, CudaStream& stream) {
  const bool writes =
      std::ranges::any_of(stage.work.gradients, [&](const GradientTo& to) { return to.at == read_aside_; }) ||
      (stage.norm != nullptr && stage.work.output->gradient == read_aside_);
  if (!has_weights(stage.operation) && (read_aside_ == nullptr || !writes)) return;
  stream.join_aside();
  read_aside_ = has_weights(stage.operation) ? stage.work.output->gradient : nullptr;
}

void CudaReplica::step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) {
  CudaStream& queue = own(stream, batch, rows);
  if (rows == 0) {
    (void)wait_for_announced(queue, batch);
    return step_without_rows(queue, sums, sink);
  }
  const std::byte* const at = wait_for_announced(queue, batch);
  queue.begin_work(WorkKind::compute, "forward", /*begins_batch=*/true);
  take_batch(queue, at, rows);
  const Pass pass = pass_on(queue, rows, sums, true);
  const auto acquire = [&](const Stage& stage) {
    for (const std::uint32_t b : stage.buckets) sink.acquire(buckets_[b], stream);
  };
  bool has_all = false;
  for (Stage& stage : stages_) {
    if (!has_all) acquire(stage);
    if (stage.work.is_first_loss && loss_scale_ != nullptr && !has_all) {
      // An exchange may move the scale until all buckets are acquired, and losses are to have one scale.
      std::for_each(&stage + 1, stages_.data() + stages_.size(), acquire);
      has_all = true;
    }
    queue.begin_work(WorkKind::compute, "forward");
    order_weights(queue, stage.orders, {});
    const LayerRange range{queue, "forward", stage.name};
    forward_of(stage, pass);
  }
  std::size_t next = 0;
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    if (stage->has_backward) {
      queue.begin_work(WorkKind::compute, "backward");
      const LayerRange range{queue, "backward", stage->name};
      join_weights_before(*stage, queue);
      backward_of(*stage, pass);
    }
    if (next == buckets_.size() || last_layers_[next] != stage->work.layer) continue;
    queue.join_aside();
    read_aside_ = nullptr;
    if (!landed_.empty()) {
      queue.begin_work(WorkKind::compute, "backward");
      bring_landed(queue, pass);
    }
    while (next < buckets_.size() && last_layers_[next] == stage->work.layer) sink.ready(buckets_[next++], stream);
  }
}

void CudaReplica::evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) {
  CudaStream& queue = own(stream, batch, rows);
  if (rows == 0) return;
  queue.begin_work(WorkKind::evaluate, "evaluate", /*begins_batch=*/true);
  take_batch(queue, device_.memory().address(batch), rows);
  const Pass pass = pass_on(queue, rows, sums, false);
  order_all_weights(queue);
  for (Stage& stage : stages_) {
    const LayerRange range{queue, "evaluate", stage.name};
    forward_of(stage, pass);
  }
}

}  // namespace troupe::cuda
