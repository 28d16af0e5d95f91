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

PoolArgs forward_args(PoolKind kind, const PoolShape& shape, const LayerWork& work) {
  PoolArgs args{};
  args.to = work.output->at, args.to_type = work.output->type;
  args.from = work.inputs[0]->at, args.from_type = work.inputs[0]->type;
  args.shape = shape, args.kind = kind;
  return args;
}

PoolBackArgs backward_args(PoolKind kind, const PoolShape& shape, const LayerWork& work) {
  const GradientTo& to = work.gradients[0];
  PoolBackArgs args{};
  args.to = to.at, args.to_type = to.type, args.adds = to.adds;
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  if (kind == PoolKind::max) {
    args.input = work.inputs[0]->at, args.input_type = work.inputs[0]->type;
    args.output = work.output->at, args.output_type = work.output->type;
  }
  args.shape = shape, args.kind = kind;
  return args;
}

void pool_forward(PoolKind kind, const PoolShape& shape, const LayerWork& work, const Pass& pass) {
  PoolArgs args = forward_args(kind, shape, work);
  pass.stream.launch(args, shape.count_out());
}

void pool_backward(PoolKind kind, const PoolShape& shape, const LayerWork& work, const Pass& pass) {
  if (work.gradients[0].at == nullptr) return;
  PoolBackArgs args = backward_args(kind, shape, work);
  pass.stream.launch(args, shape.count_in());
}

}  // namespace

void forward(const MaxPool& pool, const LayerWork& work, const Pass& pass) {
  pool_forward(PoolKind::max, pool_shape(pool, work, pass.rows), work, pass);
}
void backward(const MaxPool& pool, const LayerWork& work, const Pass& pass) {
  pool_backward(PoolKind::max, pool_shape(pool, work, pass.rows), work, pass);
}
void forward(const AveragePool& pool, const LayerWork& work, const Pass& pass) {
  pool_forward(PoolKind::average, pool_shape(pool, work, pass.rows), work, pass);
}
void backward(const AveragePool& pool, const LayerWork& work, const Pass& pass) {
  pool_backward(PoolKind::average, pool_shape(pool, work, pass.rows), work, pass);
}
void forward(const GlobalAveragePool& pool, const LayerWork& work, const Pass& pass) {
  pool_forward(PoolKind::average, pool_shape(pool, work, pass.rows), work, pass);
}
void backward(const GlobalAveragePool& pool, const LayerWork& work, const Pass& pass) {
  pool_backward(PoolKind::average, pool_shape(pool, work, pass.rows), work, pass);
}

}  // namespace troupe::cuda
