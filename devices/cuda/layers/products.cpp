#include <algorithm>
#include <variant>

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

SumColumnsArgs sums_of(const Tensor& output, std::uint64_t rows, std::uint64_t columns) {
  SumColumnsArgs args{};
  args.from = output.gradient, args.from_type = output.gradient_type;
  args.sums = {rows, columns, 1, 0};
  return args;
}

/// Output [rows, units] = input [rows, inner] times weights [units, inner], and the bias.
struct Affine {
  std::uint64_t rows, units, inner;
  bool has_bias;
};
Affine affine_of(const Dense& dense, const LayerWork& work, std::uint32_t rows) {
  const Tensor& input = *work.inputs[0];
  const std::uint64_t inner = dense.flatten ? input.width() : input.shape.extents.back();
  return {rows * (input.width() / inner), dense.units, inner, dense.bias};
}
Affine affine_of(const Conv2d& conv, const LayerWork& work, std::uint32_t rows) {
  const std::uint64_t channels = work.inputs[0]->shape.extents.back();
  return {rows * (work.inputs[0]->width() / channels), conv.filters, channels, conv.bias};
}

MultiplyArgs product_of(const Affine& of, const LayerWork& work, const Tensor& to) {
  const Tensor& input = *work.inputs[0];
  MultiplyArgs args{};
  args.to = written_to(to.at, to.type);
  if (of.has_bias) args.to.bias = work.parameters[1].as_floats();
  args.place = matrix(nullptr, to.type, of.units, 1);
  args.a = matrix(input.at, input.type, of.inner, 1);
  args.b = matrix(work.parameters[0].values, work.parameters[0].type, 1, of.inner);
  args.extents = {1, of.rows, of.units, of.inner};
  return args;
}
const std::uint16_t* half_bias(const Affine& of, const LayerWork& work) {
  return of.has_bias ? work.parameters[1].half : nullptr;
}

void forward(const Affine& of, const LayerWork& work, const Pass& pass) {
  MultiplyArgs args = product_of(of, work, *work.output);
  pass.math.multiply(pass.stream, args, half_bias(of, work));
}

bool forward_with_relu(const Affine& of, const LayerWork& work, const Tensor& to, std::byte* mask, const Pass& pass) {
  return pass.math.multiply_with_relu(pass.stream, product_of(of, work, to), half_bias(of, work), mask);
}

MultiplyArgs product_to_input(const Affine& of, const LayerWork& work) {
  MultiplyArgs args{};
  args.to = gradient_to(work.gradients[0]);
  args.place = matrix(nullptr, work.gradients[0].type, of.inner, 1);
  args.a = matrix(work.output->gradient, work.output->gradient_type, of.units, 1);
  args.b = matrix(work.parameters[0].values, work.parameters[0].type, of.inner, 1);
  args.extents = {1, of.rows, of.inner, of.units};
  return args;
}

void backward(const Affine& of, const LayerWork& work, const Pass& pass) {
  const Tensor &input = *work.inputs[0], &output = *work.output;
  MultiplyArgs to_weights{};
  to_weights.to = written_to(work.parameters[0].gradient, Stored::f32);
  to_weights.to.factor = pass.gradient_factor;
  to_weights.place = matrix(nullptr, Stored::f32, of.inner, 1);
  to_weights.a = matrix(output.gradient, output.gradient_type, 1, of.units);
  to_weights.b = matrix(input.at, input.type, of.inner, 1);
  to_weights.extents = {1, of.units, of.inner, of.rows};
  SumColumnsArgs to_bias = sums_of(output, of.rows, of.units);
  pass.math.multiply_to_gradient(pass.stream, to_weights, of.has_bias ? &to_bias : nullptr,
                                 of.has_bias ? work.parameters[1].gradient : nullptr,
                                 /*is_last=*/work.gradients[0].at == nullptr);
  if (work.gradients[0].at == nullptr) return;
  MultiplyArgs to_input = product_to_input(of, work);
  if (work.relu_mask != nullptr) return pass.math.multiply_to_relu(pass.stream, to_input, work.relu_mask);
  pass.math.multiply(pass.stream, to_input);
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
  find_divisors(s);
  return s;
}

/// The weights as the products of a convolution read them: channels last.
const void* channels_last(const LayerWork& work, const ConvolutionShape& shape) {
  return shape.taps() == 1 ? work.parameters[0].values : work.kept;
}
/// Where the gradient to the weights lands, behind the weights in the other order.
std::byte* landing_of(const LayerWork& work) {
  const LayerParameter& weights = work.parameters[0];
  return work.kept + on_a_boundary(weights.count * bytes_of(weights.type));
}

/// From [filters, inner, outer] to [filters, outer, inner].
WeightOrder weight_order(std::uint64_t count, std::uint64_t outer, std::uint64_t inner) {
  WeightOrder order{};
  order.count = static_cast<std::uint32_t>(count), order.outer = static_cast<std::uint32_t>(outer);
  order.inner = divisor_of(static_cast<std::uint32_t>(inner));
  order.filter = divisor_of(static_cast<std::uint32_t>(outer * inner));
  return order;
}

WeightOrder landed_gradient(const LayerWork& work, const ConvolutionShape& shape) {
  WeightOrder order = weight_order(shape.count_weights(), shape.channels_of_group(), shape.taps());
  order.to = work.parameters[0].gradient, order.to_type = Stored::f32;
  order.from = landing_of(work), order.from_type = work.inputs[0]->type;
  return order;
}

}  // namespace

bool is_affine(const Conv2d& conv) noexcept {
  const auto is_pair = [](const auto& pair, std::uint32_t of) { return pair.height == of && pair.width == of; };
  return is_pair(conv.kernel, 1) && is_pair(conv.stride, 1) && is_pair(conv.padding, 0) && conv.groups == 1;
}

std::optional<WeightOrder> kept_weights(const LayerWork& work, const Operation& operation) {
  const auto* const conv = std::get_if<Conv2d>(&operation);
  if (conv == nullptr || is_affine(*conv)) return std::nullopt;
  const LayerParameter& weights = work.parameters[0];
  const std::uint64_t taps = std::uint64_t{conv->kernel.height} * conv->kernel.width;
  if (taps == 1) return std::nullopt;
  WeightOrder order = weight_order(weights.count, taps, weights.count / conv->filters / taps);
  order.to = work.kept, order.to_type = weights.type;
  order.from = weights.values, order.from_type = weights.type;
  return order;
}

void order_weights(CudaStream& stream, const WeightOrders& orders, const Factor& factor) {
  for (std::size_t first = 0; first < orders.size(); first += kMostWeightOrders) {
    OrderWeightsArgs args{};
    args.factor = factor;
    args.count = static_cast<std::uint32_t>(std::min<std::size_t>(orders.size() - first, kMostWeightOrders));
    std::uint32_t blocks = 0;
    for (std::uint32_t n = 0; n < args.count; ++n) {
      args.orders[n] = orders[first + n];
      args.orders[n].first_block = blocks;
      blocks += (args.orders[n].count + kWeightsOfBlock - 1) / kWeightsOfBlock;
    }
    stream.launch_blocks(args, blocks);
  }
}

void forward(const Dense& dense, const LayerWork& work, const Pass& pass) {
  forward(affine_of(dense, work, pass.rows), work, pass);
}

void backward(const Dense& dense, const LayerWork& work, const Pass& pass) {
  backward(affine_of(dense, work, pass.rows), work, pass);
}

namespace {

ConvolveArgs forward_args(const Conv2d& conv, const LayerWork& work, const Tensor& to, std::uint32_t rows) {
  ConvolveArgs args{};
  args.to = written_to(to.at, to.type);
  if (conv.bias) args.to.bias = work.parameters[1].as_floats();
  args.images = work.inputs[0]->at, args.images_type = work.inputs[0]->type;
  args.shape = shape_of(conv, work, rows);
  args.weights = channels_last(work, args.shape), args.weights_type = work.parameters[0].type;
  return args;
}

ConvolveToWeightsArgs to_weights_args(const Conv2d& conv, const LayerWork& work, std::uint32_t rows) {
  ConvolveToWeightsArgs args{};
  args.to = written_to(work.parameters[0].gradient, Stored::f32);
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  args.images = work.inputs[0]->at, args.images_type = work.inputs[0]->type;
  args.shape = shape_of(conv, work, rows);
  return args;
}

ConvolveToImagesArgs to_images_args(const Conv2d& conv, const LayerWork& work, std::uint32_t rows) {
  ConvolveToImagesArgs args{};
  args.to = gradient_to(work.gradients[0]);
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  args.shape = shape_of(conv, work, rows);
  args.weights = channels_last(work, args.shape), args.weights_type = work.parameters[0].type;
  return args;
}

const std::uint16_t* half_bias(const Conv2d& conv, const LayerWork& work) {
  return conv.bias ? work.parameters[1].half : nullptr;
}

}  // namespace

void prepare(const Conv2d& conv, const LayerWork& work, const Tensor* relu, std::uint32_t rows, bool trains,
             Math& math) {
  if (is_affine(conv)) return;
  const Tensor& to = relu != nullptr ? *relu : *work.output;
  math.prepare(forward_args(conv, work, to, rows), half_bias(conv, work), relu != nullptr);
  if (!trains) return;
  math.prepare(to_weights_args(conv, work, rows), landing_of(work));
  if (work.gradients[0].at != nullptr) math.prepare(to_images_args(conv, work, rows));
}

bool has_relu_gradient(const Dense& dense, const LayerWork& work, const std::byte* mask, const Pass& pass) {
  return pass.math.has_relu_gradient(product_to_input(affine_of(dense, work, pass.rows), work), mask);
}

bool forward_with_relu(const Operation& operation, const LayerWork& work, const Tensor& to, std::byte* mask,
                       const Pass& pass) {
  if (const auto* const dense = std::get_if<Dense>(&operation))
    return forward_with_relu(affine_of(*dense, work, pass.rows), work, to, mask, pass);
  const auto* const conv = std::get_if<Conv2d>(&operation);
  if (conv == nullptr) return false;
  if (is_affine(*conv)) return forward_with_relu(affine_of(*conv, work, pass.rows), work, to, nullptr, pass);
  const ConvolveArgs args = forward_args(*conv, work, to, pass.rows);
  if (!pass.math.has_relu(args, half_bias(*conv, work))) return false;
  pass.math.convolve_with_relu(pass.stream, args, half_bias(*conv, work));
  return true;
}

void forward(const Conv2d& conv, const LayerWork& work, const Pass& pass) {
  if (is_affine(conv)) return forward(affine_of(conv, work, pass.rows), work, pass);
  ConvolveArgs args = forward_args(conv, work, *work.output, pass.rows);
  pass.math.convolve(pass.stream, args, half_bias(conv, work));
}

void backward(const Conv2d& conv, const LayerWork& work, const Pass& pass) {
  if (is_affine(conv)) return backward(affine_of(conv, work, pass.rows), work, pass);
  ConvolveToWeightsArgs to_weights = to_weights_args(conv, work, pass.rows);
  to_weights.to.factor = pass.gradient_factor;
  if (pass.math.convolve_to_weights(pass.stream, to_weights, landing_of(work)))
    pass.landed.push_back(landed_gradient(work, to_weights.shape));
  if (conv.bias) {
    SumColumnsArgs to_bias = sums_of(*work.output, to_weights.shape.count_out() / conv.filters, conv.filters);
    to_bias.to = work.parameters[1].gradient, to_bias.factor = pass.gradient_factor;
    pass.math.sum_columns(pass.stream, to_bias);
  }
  if (work.gradients[0].at == nullptr) return;
  ConvolveToImagesArgs to_images = to_images_args(conv, work, pass.rows);
  pass.math.convolve_to_images(pass.stream, to_images);
}

}  // namespace troupe::cuda
