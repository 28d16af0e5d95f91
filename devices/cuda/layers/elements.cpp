#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {

void move_all(const GradientTo& to, const void* from, Stored type, std::uint64_t count, const Pass& pass) {
  if (to.at == nullptr || to.at == from) return;  // the terms of a sum may share its gradient (shared_gradients.hpp)
  MoveColumnsArgs args{nullptr, to, from, 1, count, 0, count, 0, count, type, 0};
  pass.stream.launch(args, count);
}

namespace {

void activate_forward(Curve curve, const LayerWork& work, const Pass& pass) {
  ActivateArgs args{};
  args.to = work.output->at, args.to_type = work.output->type;
  args.from = work.inputs[0]->at, args.from_type = work.inputs[0]->type;
  args.curve = curve, args.count = pass.rows * work.output->width();
  pass.stream.launch(args, args.count);
}

void activate_backward(Curve curve, const LayerWork& work, const Pass& pass) {
  if (work.gradients[0].at == nullptr) return;
  const Tensor& kept = curve == Curve::gelu ? *work.inputs[0] : *work.output;
  ActivateBackArgs args{};
  args.to = work.gradients[0];
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  args.kept = kept.at, args.kept_type = kept.type;
  args.curve = curve, args.count = pass.rows * work.output->width();
  pass.stream.launch(args, args.count);
}

void combine_inputs(Combination combination, const LayerWork& work, const Pass& pass) {
  CombineArgs args{};
  for (std::size_t n = 0; n < work.inputs.size(); ++n)
    args.from[n] = work.inputs[n]->at, args.from_types[n] = work.inputs[n]->type;
  args.to = work.output->at, args.to_type = work.output->type;
  args.count = pass.rows * work.output->width();
  args.count_inputs = static_cast<std::uint32_t>(work.inputs.size());
  args.combination = combination;
  pass.stream.launch(args, args.count);
}

/// Element (row, ...) of an input and its place in what is concatenated, the one to the other.
void move_part(const LayerWork& work, const Pass& pass, std::size_t input, std::uint64_t first, bool back) {
  const std::uint64_t own = work.inputs[input]->shape.extents.back(), whole = work.output->shape.extents.back();
  MoveColumnsArgs args{};
  args.count_rows = pass.rows * (work.output->width() / whole), args.width = own;
  if (back) {
    args.to = work.gradients[input];
    args.from = work.output->gradient, args.from_type = work.output->gradient_type;
    args.to_stride = own, args.from_first = first, args.from_stride = whole;
  } else {
    args.to = {work.output->at, work.output->type, 0};
    args.from = work.inputs[input]->at, args.from_type = work.inputs[input]->type;
    args.to_first = first, args.to_stride = whole, args.from_stride = own;
  }
  if (args.to.at != nullptr) pass.stream.launch(args, args.count_rows * own);
}

void move_parts(const LayerWork& work, const Pass& pass, bool back) {
  std::uint64_t first = 0;
  for (std::size_t n = 0; n < work.inputs.size(); ++n) {
    move_part(work, pass, n, first, back);
    first += work.inputs[n]->shape.extents.back();
  }
}

/// Extent k of what is written is extent order[k] of `read`.
void permute_to(const GradientTo& to, const void* from, Stored type, const Shape& read,
                const std::vector<std::uint32_t>& order, const Pass& pass) {
  PermuteArgs args{};
  std::vector<std::uint64_t> strides(order.size(), 1);
  for (std::size_t k = order.size() - 1; k-- > 0;) strides[k] = strides[k + 1] * read.extents[k + 1];
  for (std::size_t k = 0; k < order.size(); ++k)
    args.extents[k] = read.extents[order[k]], args.strides[k] = strides[order[k]];
  args.to = to, args.from = from, args.from_type = type;
  args.width = read.count_elements(), args.count = pass.rows * args.width;
  args.count_extents = static_cast<std::uint32_t>(order.size());
  pass.stream.launch(args, args.count);
}

void drop_elements(const Dropout& dropout, const LayerWork& work, const Pass& pass, const GradientTo& to,
                   const void* from, Stored type) {
  const std::uint64_t count = pass.rows * work.output->width();
  if (pass.keys == nullptr) return move_all(to, from, type, count, pass);
  DropArgs args{nullptr, to, from, pass.keys, count, work.output->width(), dropout.rate, work.layer, type};
  pass.stream.launch(args, count);
}

}  // namespace

void forward(const Relu&, const LayerWork& work, const Pass& pass) { activate_forward(Curve::relu, work, pass); }
void backward(const Relu&, const LayerWork& work, const Pass& pass) { activate_backward(Curve::relu, work, pass); }
void forward(const Tanh&, const LayerWork& work, const Pass& pass) { activate_forward(Curve::tanh, work, pass); }
void backward(const Tanh&, const LayerWork& work, const Pass& pass) { activate_backward(Curve::tanh, work, pass); }
void forward(const Sigmoid&, const LayerWork& work, const Pass& pass) { activate_forward(Curve::sigmoid, work, pass); }
void backward(const Sigmoid&, const LayerWork& work, const Pass& pass) {
  activate_backward(Curve::sigmoid, work, pass);
}
void forward(const Gelu&, const LayerWork& work, const Pass& pass) { activate_forward(Curve::gelu, work, pass); }
void backward(const Gelu&, const LayerWork& work, const Pass& pass) { activate_backward(Curve::gelu, work, pass); }

void forward(const Add&, const LayerWork& work, const Pass& pass) { combine_inputs(Combination::sum, work, pass); }
void backward(const Add&, const LayerWork& work, const Pass& pass) {
  for (const GradientTo& to : work.gradients)
    move_all(to, work.output->gradient, work.output->gradient_type, pass.rows * work.output->width(), pass);
}

void forward(const Multiply&, const LayerWork& work, const Pass& pass) {
  combine_inputs(Combination::product, work, pass);
}
void backward(const Multiply&, const LayerWork& work, const Pass& pass) {
  FactorBackArgs args{};
  for (std::size_t n = 0; n < work.inputs.size(); ++n)
    args.from[n] = work.inputs[n]->at, args.from_types[n] = work.inputs[n]->type;
  args.gradient = work.output->gradient, args.gradient_type = work.output->gradient_type;
  args.count = pass.rows * work.output->width();
  args.count_inputs = static_cast<std::uint32_t>(work.inputs.size());
  for (std::uint32_t n = 0; n < args.count_inputs; ++n) {
    args.to = work.gradients[n], args.factor = n;
    if (args.to.at != nullptr) pass.stream.launch(args, args.count);
  }
}

void forward(const Concat&, const LayerWork& work, const Pass& pass) { move_parts(work, pass, false); }
void backward(const Concat&, const LayerWork& work, const Pass& pass) { move_parts(work, pass, true); }

void forward(const Transpose& transpose, const LayerWork& work, const Pass& pass) {
  const Tensor& input = *work.inputs[0];
  permute_to({work.output->at, work.output->type, 0}, input.at, input.type, input.shape, transpose.order, pass);
}
void backward(const Transpose& transpose, const LayerWork& work, const Pass& pass) {
  if (work.gradients[0].at == nullptr) return;
  std::vector<std::uint32_t> inverse(transpose.order.size());
  for (std::uint32_t k = 0; k < inverse.size(); ++k) inverse[transpose.order[k]] = k;
  permute_to(work.gradients[0], work.output->gradient, work.output->gradient_type, work.output->shape, inverse, pass);
}

void forward(const Dropout& dropout, const LayerWork& work, const Pass& pass) {
  drop_elements(dropout, work, pass, {work.output->at, work.output->type, 0}, work.inputs[0]->at, work.inputs[0]->type);
}
void backward(const Dropout& dropout, const LayerWork& work, const Pass& pass) {
  if (work.gradients[0].at == nullptr) return;
  drop_elements(dropout, work, pass, work.gradients[0], work.output->gradient, work.output->gradient_type);
}

}  // namespace troupe::cuda
