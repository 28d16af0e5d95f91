#include <algorithm>
#include <initializer_list>

#include "devices/cuda/layers/layers.hpp"
#include "devices/cuda/own_launch.hpp"

namespace troupe::cuda {
namespace {

/// Of a batch norm's parameters.
enum : std::size_t { kScale, kShift, kRunningMean, kRunningVariance };

ChannelTiles tiles_of(const LayerWork& work, std::initializer_list<Stored> types, const Pass& pass) {
  const std::uint32_t channels = work.output->shape.extents.back();
  const bool are_short = std::ranges::none_of(types, [](Stored type) { return type == Stored::f32; });
  return channel_tiles(pass.rows * (work.output->width() / channels), channels, are_short,
                       kBlocksOfProcessor * pass.math.processors());
}

/// Of a batch norm: the channels' moments, and behind them the sums of the backward pass.
float* moments_of(const LayerWork& work) { return reinterpret_cast<float*>(work.kept); }
float* slopes_of(const LayerWork& work) {
  const std::uint64_t channels = work.output->shape.extents.back();
  return reinterpret_cast<float*>(work.kept + on_a_boundary(3 * channels * sizeof(float)));
}

void find_moments(const BatchNorm& norm, const LayerWork& work, const Pass& pass) {
  const Tensor& input = *work.inputs[0];
  const auto epsilon = static_cast<float>(norm.epsilon);
  if (pass.training) {
    SumMomentsArgs batch{};
    batch.to = moments_of(work), batch.partial = reinterpret_cast<Moments*>(pass.math.scratch());
    batch.from = input.at, batch.from_type = input.type, batch.epsilon = epsilon;
    batch.tiles = tiles_of(work, {input.type}, pass);
    return pass.stream.launch_blocks(batch, count_blocks(batch.tiles));
  }
  RunningMomentsArgs running{};
  running.to = moments_of(work), running.channels = work.output->shape.extents.back(), running.epsilon = epsilon;
  running.mean = work.parameters[kRunningMean].as_floats();
  running.variance = work.parameters[kRunningVariance].as_floats();
  pass.stream.launch(running, running.channels);
}

/// `gradient`: to what the norm puts out; for a ReLU, to what that has put out. `sum`: of the norm and another tensor,
/// before the ReLU; null: there is none.
void find_slopes(const LayerWork& work, const Tensor& gradient, const Tensor* sum, const Pass& pass) {
  const Tensor& input = *work.inputs[0];
  SumSlopesArgs args{};
  args.partial = reinterpret_cast<SlopeSums*>(pass.math.scratch());
  args.gradient = gradient.gradient, args.gradient_type = gradient.gradient_type;
  args.from = input.at, args.from_type = input.type;
  if (work.relu != nullptr) args.relu = sum != nullptr ? NormRelu::kept : NormRelu::again;
  Stored kept_type = args.from_type;
  if (sum != nullptr) {
    args.kept = work.relu->at, args.kept_type = kept_type = work.relu->type;
    args.to = sum->gradient;
  }
  args.moments = moments_of(work);
  args.scale = work.parameters[kScale].as_floats(), args.shift = work.parameters[kShift].as_floats();
  args.tiles = tiles_of(work, {args.gradient_type, args.from_type, kept_type}, pass);
  args.sums_to = slopes_of(work);
  args.scale_to = work.parameters[kScale].gradient, args.shift_to = work.parameters[kShift].gradient;
  args.mean_to = work.parameters[kRunningMean].gradient;
  args.variance_to = work.parameters[kRunningVariance].gradient;
  args.samples = pass.samples, args.factor = pass.gradient_factor;
  pass.stream.launch_blocks(args, count_blocks(args.tiles));
}

void normalize_rows_forward(const LayerWork& work, const Pass& pass, double epsilon, bool is_layer_norm) {
  const std::uint64_t width = work.output->shape.extents.back();
  NormalizeRowsArgs args{};
  args.to = work.output->at, args.to_type = work.output->type;
  args.from = work.inputs[0]->at, args.from_type = work.inputs[0]->type;
  args.moments = reinterpret_cast<RowMoments*>(work.kept);
  args.scale = work.parameters[0].as_floats();
  if (is_layer_norm) args.shift = work.parameters[1].as_floats();
  args.count_rows = pass.rows * (work.output->width() / width), args.width = width;
  args.epsilon = static_cast<float>(epsilon), args.is_layer_norm = is_layer_norm ? 1 : 0;
  pass.stream.launch(args, args.count_rows * kWarpThreads);
}

void normalize_rows_backward(const LayerWork& work, const Pass& pass, bool is_layer_norm) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const std::uint64_t width = output.shape.extents.back(), rows = pass.rows * (output.width() / width);
  const auto* const moments = reinterpret_cast<const RowMoments*>(work.kept);
  SumColumnsArgs to_parameters{};
  to_parameters.from = output.gradient, to_parameters.from_type = output.gradient_type;
  to_parameters.times = input.at, to_parameters.times_type = input.type, to_parameters.moments = moments;
  to_parameters.sums = {rows, width, 1, 0};
  to_parameters.times_to = work.parameters[0].gradient;
  if (is_layer_norm) to_parameters.to = work.parameters[1].gradient;
  to_parameters.factor = pass.gradient_factor;
  pass.math.sum_columns(pass.stream, to_parameters);
  if (work.gradients[0].at == nullptr) return;
  NormalizeRowsBackArgs args{};
  args.to = work.gradients[0];
  args.gradient = output.gradient, args.gradient_type = output.gradient_type;
  args.from = input.at, args.from_type = input.type;
  args.moments = moments, args.scale = work.parameters[0].as_floats();
  args.count_rows = rows, args.width = width, args.is_layer_norm = is_layer_norm ? 1 : 0;
  pass.stream.launch(args, rows * kWarpThreads);
}

}  // namespace

void forward(const BatchNorm& norm, const LayerWork& work, const Pass& pass) {
  find_moments(norm, work, pass);
  const Tensor &input = *work.inputs[0], &to = work.relu != nullptr ? *work.relu : *work.output;
  NormalizeBatchArgs args{};
  args.to = to.at, args.to_type = to.type;
  args.from = input.at, args.from_type = args.added_type = input.type;
  if (work.added != nullptr) args.added = work.added->at, args.added_type = work.added->type;
  args.with_relu = work.relu != nullptr ? 1 : 0;
  args.moments = moments_of(work);
  args.scale = work.parameters[kScale].as_floats(), args.shift = work.parameters[kShift].as_floats();
  args.tiles = tiles_of(work, {args.to_type, args.from_type, args.added_type}, pass);
  pass.stream.launch_blocks(args, count_blocks(args.tiles));
}

void backward_of_sum(const LayerWork& norm, const Tensor& sum, const Pass& pass) {
  find_slopes(norm, *norm.relu, &sum, pass);
}

void backward(const BatchNorm&, const LayerWork& work, const Pass& pass) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  if (work.added == nullptr) find_slopes(work, output, nullptr, pass);
  if (work.gradients[0].at == nullptr) return;
  NormalizeBatchBackArgs args{};
  args.to = work.gradients[0];
  args.gradient = output.gradient, args.gradient_type = output.gradient_type;
  args.from = input.at, args.from_type = input.type;
  if (work.relu != nullptr && work.added == nullptr) args.relu = NormRelu::again;
  args.moments = moments_of(work), args.sums = slopes_of(work);
  args.scale = work.parameters[kScale].as_floats(), args.shift = work.parameters[kShift].as_floats();
  args.tiles = tiles_of(work, {args.to.type, args.gradient_type, args.from_type}, pass);
  pass.stream.launch_blocks(args, count_blocks(args.tiles));
}

void forward(const LayerNorm& norm, const LayerWork& work, const Pass& pass) {
  normalize_rows_forward(work, pass, norm.epsilon, true);
}
void backward(const LayerNorm&, const LayerWork& work, const Pass& pass) { normalize_rows_backward(work, pass, true); }
void forward(const L2Norm& norm, const LayerWork& work, const Pass& pass) {
  normalize_rows_forward(work, pass, norm.epsilon, false);
}
void backward(const L2Norm&, const LayerWork& work, const Pass& pass) { normalize_rows_backward(work, pass, false); }

}  // namespace troupe::cuda
