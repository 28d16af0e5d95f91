#include <optional>

#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {
namespace {

/// Of a batch norm's parameters.
enum : std::size_t { kScale, kShift, kRunningMean, kRunningVariance };

ColumnSums over_channels(const LayerWork& work, const Pass& pass) {
  const std::uint64_t channels = work.output->shape.extents.back();
  ColumnSums sums{pass.rows * (work.output->width() / channels), channels, 1, 0};
  pass.math.cut(sums);
  return sums;
}

/// Of a batch norm: the channels' moments, and behind them the sums of the backward pass.
ChannelMoments* moments_of(const LayerWork& work) { return reinterpret_cast<ChannelMoments*>(work.kept); }
SlopeSums* slopes_of(const LayerWork& work, std::uint64_t channels) {
  return reinterpret_cast<SlopeSums*>(work.kept + on_a_boundary(channels * sizeof(ChannelMoments)));
}

/// The tensors of a batch norm by a library lie there, one behind the other.
float* dnn_tensor(const LayerWork& work, std::uint64_t which) {
  const std::uint64_t channels = work.output->shape.extents.back();
  return reinterpret_cast<float*>(work.kept + which * on_a_boundary(channels * sizeof(float)));
}

BatchNormArgs dnn_args(const BatchNorm& norm, const LayerWork& work, std::uint32_t rows) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const std::uint32_t channels = output.shape.extents.back();
  BatchNormArgs args{};
  args.rows = rows, args.channels = channels, args.epsilon = static_cast<float>(norm.epsilon);
  args.positions = static_cast<std::uint32_t>(output.width() / channels);
  args.input = input.at, args.input_type = input.type;
  args.output = output.at, args.output_type = output.type;
  args.scale = work.parameters[kScale].as_floats(), args.shift = work.parameters[kShift].as_floats();
  args.running_mean = work.parameters[kRunningMean].as_floats();
  args.running_variance = work.parameters[kRunningVariance].as_floats();
  args.mean = dnn_tensor(work, 0), args.inverse = dnn_tensor(work, 1);
  args.batch_mean = dnn_tensor(work, 2), args.batch_variance = dnn_tensor(work, 3);
  return args;
}

/// Without a value: a library does not compute it, since there is no gradient to the input.
std::optional<BatchNormBackArgs> dnn_back_args(const LayerWork& work) {
  if (work.gradients.empty() || work.gradients[0].at == nullptr) return std::nullopt;
  return BatchNormBackArgs{work.gradients[0], work.output->gradient, work.output->gradient_type, dnn_tensor(work, 4),
                           dnn_tensor(work, 5)};
}

/// From where a library has left them. Other ranks may be reading the gradients of the step before.
void bring_gradients(const BatchNormArgs& norm, const BatchNormBackArgs& back, const LayerWork& work,
                     const Pass& pass) {
  BringChannelGradientsArgs args{};
  args.scale_to = work.parameters[kScale].gradient, args.shift_to = work.parameters[kShift].gradient;
  args.mean_to = work.parameters[kRunningMean].gradient;
  args.variance_to = work.parameters[kRunningVariance].gradient;
  args.to_scale = back.to_scale, args.to_shift = back.to_shift;
  args.mean = norm.batch_mean, args.variance = norm.batch_variance;
  args.samples = pass.samples, args.channels = norm.channels, args.factor = pass.gradient_factor;
  pass.stream.launch(args, args.channels);
}

void find_moments(const BatchNorm& norm, const LayerWork& work, const Pass& pass, const ColumnSums& sums) {
  const auto epsilon = static_cast<float>(norm.epsilon);
  if (pass.training) {
    SumChannelsArgs batch{};
    batch.to = moments_of(work), batch.partial = reinterpret_cast<Moments*>(pass.math.scratch());
    batch.from = work.inputs[0]->at, batch.from_type = work.inputs[0]->type;
    batch.sums = sums, batch.epsilon = epsilon;
    return pass.stream.launch(batch, count_tiles(sums) * kBlockThreads);
  }
  ChannelMomentsArgs running{};
  running.to = moments_of(work), running.channels = sums.count_columns, running.epsilon = epsilon;
  running.running_mean = work.parameters[kRunningMean].as_floats();
  running.running_variance = work.parameters[kRunningVariance].as_floats();
  pass.stream.launch(running, running.channels);
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

void prepare(const BatchNorm& norm, const LayerWork& work, std::uint32_t rows, bool trains, Math& math) {
  if (!trains) return;
  if (const auto back = dnn_back_args(work)) math.prepare(dnn_args(norm, work, rows), *back);
}

void forward(const BatchNorm& norm, const LayerWork& work, const Pass& pass) {
  if (const auto back = dnn_back_args(work);
      pass.training && back && pass.math.normalize(pass.stream, dnn_args(norm, work, pass.rows), *back))
    return;
  const ColumnSums sums = over_channels(work, pass);
  find_moments(norm, work, pass, sums);
  NormalizeChannelsArgs args{};
  args.to = work.output->at, args.to_type = work.output->type;
  args.from = work.inputs[0]->at, args.from_type = work.inputs[0]->type;
  args.moments = moments_of(work);
  args.scale = work.parameters[kScale].as_floats(), args.shift = work.parameters[kShift].as_floats();
  args.count = pass.rows * work.output->width(), args.channels = sums.count_columns;
  pass.stream.launch(args, args.count);
}

void backward(const BatchNorm& norm, const LayerWork& work, const Pass& pass) {
  const BatchNormArgs by_library = dnn_args(norm, work, pass.rows);
  if (const auto back = dnn_back_args(work); back && pass.math.normalize_back(pass.stream, by_library, *back))
    return bring_gradients(by_library, *back, work, pass);
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const ColumnSums sums = over_channels(work, pass);
  SumChannelSlopesArgs slopes{};
  slopes.sums_to = slopes_of(work, sums.count_columns);
  slopes.scale_to = work.parameters[kScale].gradient, slopes.shift_to = work.parameters[kShift].gradient;
  slopes.mean_to = work.parameters[kRunningMean].gradient;
  slopes.variance_to = work.parameters[kRunningVariance].gradient;
  slopes.partial = reinterpret_cast<SlopeSums*>(pass.math.scratch());
  slopes.gradient = output.gradient, slopes.gradient_type = output.gradient_type;
  slopes.from = input.at, slopes.from_type = input.type;
  slopes.moments = moments_of(work), slopes.samples = pass.samples, slopes.sums = sums;
  slopes.factor = pass.gradient_factor;
  pass.stream.launch(slopes, count_tiles(sums) * kBlockThreads);
  if (work.gradients[0].at == nullptr) return;
  NormalizeChannelsBackArgs args{};
  args.to = work.gradients[0];
  args.gradient = output.gradient, args.gradient_type = output.gradient_type;
  args.from = input.at, args.from_type = input.type;
  args.moments = slopes.moments, args.sums = slopes.sums_to;
  args.scale = work.parameters[kScale].as_floats();
  args.count = pass.rows * output.width(), args.channels = sums.count_columns;
  pass.stream.launch(args, args.count);
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
