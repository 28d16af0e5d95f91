#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {
namespace {

ProductTo written_to(void* at, Stored type, std::uint32_t adds = 0) {
  return {
      .at = at, .bias = nullptr, .partial = nullptr, .count = 0, .type = type, .adds = adds, .parts = 1, .scale = 1};
}
ProductTo gradient_to(const GradientTo& to) { return written_to(to.at, to.type, to.adds); }

Matrix matrix(const void* at, Stored type, std::uint64_t row_stride, std::uint64_t column_stride) {
  return {at, row_stride, column_stride, 0, 0, type, 0};
}

void sum_to_bias(const LayerWork& work, const Pass& pass, std::uint64_t rows, std::uint64_t columns) {
  SumColumnsArgs args{};
  args.from = work.output->gradient, args.from_type = work.output->gradient_type;
  args.sums = {rows, columns, 1, 0};
  pass.math.sum_columns(pass.stream, args, work.parameters[1].gradient);
}

std::uint64_t inner_of(const Dense& dense, const Tensor& input) {
  return dense.flatten ? input.width() : input.shape.extents.back();
}

ConvolutionShape shape_of(const Conv2d& conv, const LayerWork& work, std::uint32_t rows) {
  const auto &in = work.inputs[0]->shape.extents, &out = work.output->shape.extents;
  ConvolutionShape s{};
  s.images = rows, s.height = in[0], s.width = in[1], s.channels = in[2];
  s.out_height = out[0], s.out_width = out[1], s.filters = out[2], s.groups = conv.groups;
  s.kernel_height = conv.kernel.height, s.kernel_width = conv.kernel.width;
  s.padding_height = conv.padding.height, s.padding_width = conv.padding.width;
  s.dilation_height = conv.dilation.height, s.dilation_width = conv.dilation.width;
  s.stride_height = conv.stride.height, s.stride_width = conv.stride.width;
  s.by_image = divisor_of(s.height * s.width), s.by_width = divisor_of(s.width);
  s.by_out_image = divisor_of(s.out_height * s.out_width), s.by_out_width = divisor_of(s.out_width);
  s.by_kernel_width = divisor_of(s.kernel_width);
  s.by_channels = divisor_of(s.channels / s.groups), s.by_filters = divisor_of(s.filters / s.groups);
  s.by_stride_height = divisor_of(s.stride_height), s.by_stride_width = divisor_of(s.stride_width);
  return s;
}

/// The weights as the products of a convolution read them: channels last.
const void* channels_last(const LayerWork& work, const ConvolutionShape& shape) {
  return shape.taps() == 1 ? work.parameters[0].values : work.kept;
}
void bring_channels_last(const LayerWork& work, const ConvolutionShape& shape, const Pass& pass) {
  if (shape.taps() == 1) return;
  PermuteArgs args{};
  args.to = {work.kept, work.parameters[0].type, 0};
  args.from = work.parameters[0].values, args.from_type = work.parameters[0].type;
  args.count = work.parameters[0].count, args.width = shape.taps() * shape.channels_of_group();
  args.extents[0] = static_cast<std::uint32_t>(shape.taps()), args.strides[0] = 1;
  args.extents[1] = shape.channels_of_group(), args.strides[1] = shape.taps();
  args.count_extents = 2;
  pass.stream.launch(args, args.count);
}

}  // namespace

void forward(const Dense& dense, const LayerWork& work, const Pass& pass) {
  const Tensor& input = *work.inputs[0];
  const std::uint64_t inner = inner_of(dense, input);
  MultiplyArgs args{};
  args.to = written_to(work.output->at, work.output->type);
  if (dense.bias) args.to.bias = work.parameters[1].as_floats();
  args.place = matrix(nullptr, work.output->type, dense.units, 1);
  args.a = matrix(input.at, input.type, inner, 1);
  args.b = matrix(work.parameters[0].values, work.parameters[0].type, 1, inner);
  args.extents = {1, pass.rows * (input.width() / inner), dense.units, inner};
  pass.math.multiply(pass.stream, args);
}

void backward(const Dense& dense, const LayerWork& work, const Pass& pass) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  const std::uint64_t inner = inner_of(dense, input), rows = pass.rows * (input.width() / inner);
  MultiplyArgs to_weights{};
  to_weights.to = written_to(work.parameters[0].gradient, Stored::f32);
  to_weights.place = matrix(nullptr, Stored::f32, inner, 1);
  to_weights.a = matrix(output.gradient, output.gradient_type, 1, dense.units);
  to_weights.b = matrix(input.at, input.type, inner, 1);
  to_weights.extents = {1, dense.units, inner, rows};
  pass.math.multiply(pass.stream, to_weights);
  if (dense.bias) sum_to_bias(work, pass, rows, dense.units);
  if (work.gradients[0].at == nullptr) return;
  MultiplyArgs to_input{};
  to_input.to = gradient_to(work.gradients[0]);
  to_input.place = matrix(nullptr, work.gradients[0].type, inner, 1);
  to_input.a = matrix(output.gradient, output.gradient_type, dense.units, 1);
  to_input.b = matrix(work.parameters[0].values, work.parameters[0].type, inner, 1);
  to_input.extents = {1, rows, inner, dense.units};
  pass.math.multiply(pass.stream, to_input);
}

void forward(const Conv2d& conv, const LayerWork& work, const Pass& pass) {
  ConvolveArgs args{};
  args.to = written_to(work.output->at, work.output->type);
  if (conv.bias) args.to.bias = work.parameters[1].as_floats();
  args.images = work.inputs[0]->at, args.images_type = work.inputs[0]->type;
  args.shape = shape_of(conv, work, pass.rows);
  bring_channels_last(work, args.shape, pass);
  args.weights = channels_last(work, args.shape), args.weights_type = work.parameters[0].type;
  pass.math.convolve(pass.stream, args);
}

void backward(const Conv2d& conv, const LayerWork& work, const Pass& pass) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  ConvolveToWeightsArgs to_weights{};
  to_weights.to = written_to(work.parameters[0].gradient, Stored::f32);
  to_weights.gradient = output.gradient, to_weights.gradient_type = output.gradient_type;
  to_weights.images = input.at, to_weights.images_type = input.type;
  to_weights.shape = shape_of(conv, work, pass.rows);
  pass.math.convolve_to_weights(pass.stream, to_weights);
  if (conv.bias) sum_to_bias(work, pass, to_weights.shape.count_out() / conv.filters, conv.filters);
  if (work.gradients[0].at == nullptr) return;
  ConvolveToImagesArgs to_images{};
  to_images.to = gradient_to(work.gradients[0]);
  to_images.gradient = output.gradient, to_images.gradient_type = output.gradient_type;
  to_images.shape = to_weights.shape;
  to_images.weights = channels_last(work, to_images.shape), to_images.weights_type = work.parameters[0].type;
  pass.math.convolve_to_images(pass.stream, to_images);
}

}  // namespace troupe::cuda
