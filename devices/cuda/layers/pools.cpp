#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {
namespace {

PoolShape window_of(const LayerWork& work, std::uint32_t rows, Size2 kernel, Size2 stride, Size2 padding) {
  const auto& in = work.inputs[0]->shape.extents;
  const auto windows = [](std::uint32_t side, std::uint32_t size, std::uint32_t step, std::uint32_t around) {
    return (side + 2 * around - size) / step + 1;
  };
  PoolShape s{};
  s.images = rows, s.height = in[0], s.width = in[1], s.channels = in[2];
  s.kernel_height = kernel.height, s.kernel_width = kernel.width;
  s.stride_height = stride.height, s.stride_width = stride.width;
  s.padding_height = padding.height, s.padding_width = padding.width;
  s.out_height = windows(s.height, kernel.height, stride.height, padding.height);
  s.out_width = windows(s.width, kernel.width, stride.width, padding.width);
  find_divisors(s);
  return s;
}
template <class Pool>
PoolShape pool_shape(const Pool& pool, const LayerWork& work, std::uint32_t rows) {
  return window_of(work, rows, pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding);
}
/// One window: the whole image.
PoolShape pool_shape(const GlobalAveragePool&, const LayerWork& work, std::uint32_t rows) {
  const auto& in = work.inputs[0]->shape.extents;
  return window_of(work, rows, {in[0], in[1]}, {1, 1}, {0, 0});
}

template <class Args>
void launch(Args& args, const Pass& pass) {
  divide_among_threads(args);
  pass.stream.launch(args, count_items(args));
}

template <class Args>
Args forward_args(const PoolShape& shape, const LayerWork& work) {
  Args args{};
  args.shape = shape;
  args.to = work.output->at, args.to_type = work.output->type;
  args.from = work.inputs[0]->at, args.from_type = work.inputs[0]->type;
  return args;
}
template <class Args>
Args backward_args(const PoolShape& shape, const LayerWork& work) {
  Args args{};
  args.shape = shape, args.to = work.gradients[0];
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  return args;
}

template <class Pool>
void average(const Pool& pool, const LayerWork& work, const Pass& pass) {
  auto args = forward_args<AveragePoolArgs>(pool_shape(pool, work, pass.rows), work);
  launch(args, pass);
}
template <class Pool>
void average_back(const Pool& pool, const LayerWork& work, const Pass& pass) {
  if (work.gradients[0].at == nullptr) return;
  auto args = backward_args<AveragePoolBackArgs>(pool_shape(pool, work, pass.rows), work);
  launch(args, pass);
}

}  // namespace

/// Evaluations, and pools before which nothing is trained, write no index.
void forward(const MaxPool& pool, const LayerWork& work, const Pass& pass) {
  auto args = forward_args<MaxPoolArgs>(pool_shape(pool, work, pass.rows), work);
  const bool has_gradient = pass.training && !work.gradients.empty() && work.gradients[0].at != nullptr;
  if (has_gradient) args.index = work.kept;
  if (work.curve) args.has_curve = 1, args.curve = *work.curve;
  launch(args, pass);
}
void backward(const MaxPool& pool, const LayerWork& work, const Pass& pass) {
  if (work.gradients[0].at == nullptr) return;
  auto args = backward_args<MaxPoolBackArgs>(pool_shape(pool, work, pass.rows), work);
  args.index = work.kept;
  if (work.curve) args.slopes = {work.output->at, work.output->type, *work.curve};
  launch(args, pass);
}

void forward(const AveragePool& pool, const LayerWork& work, const Pass& pass) { average(pool, work, pass); }
void backward(const AveragePool& pool, const LayerWork& work, const Pass& pass) { average_back(pool, work, pass); }
void forward(const GlobalAveragePool& pool, const LayerWork& work, const Pass& pass) { average(pool, work, pass); }
void backward(const GlobalAveragePool& pool, const LayerWork& work, const Pass& pass) {
  average_back(pool, work, pass);
}

}  // namespace troupe::cuda
