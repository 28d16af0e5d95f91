#include <algorithm>

#include "devices/cuda/layers/layers.hpp"

namespace troupe::cuda {
namespace {

/// At null in an evaluation.
GradientTo gradient_wanted(const LayerWork& work, const Pass& pass) {
  return pass.training ? work.gradients[0] : GradientTo{nullptr, Stored::f32, 0};
}

/// With what all losses have in common.
template <class Args>
void launch(Args& args, const LayerWork& work, const Pass& pass, double weight) {
  args.rows = reinterpret_cast<RowLoss*>(work.kept), args.gradient = gradient_wanted(work, pass);
  args.factor = pass.loss_factor;
  args.total.weight = weight;
  args.total.adds = pass.training && work.is_first_loss ? 0 : 1;
  args.total.counts = work.is_last_loss ? 1 : 0;
  if (work.is_last_loss && pass.training) args.total.samples = pass.samples;
  args.given.own.sums = pass.sums;
  pass.stream.launch(args, std::max<std::uint64_t>(args.count_rows, 1) * kWarpThreads);
}

void number_loss_of(const LayerWork& work, const Pass& pass, double weight, double beta) {
  const Tensor &read = *work.inputs[0], &targets = *work.inputs[1];
  NumberLossArgs args{};
  args.numbers = read.at, args.numbers_type = read.type;
  args.targets = targets.at, args.targets_type = targets.type;
  args.count_rows = pass.rows, args.width = read.width();
  args.weight = static_cast<float>(weight), args.beta = static_cast<float>(beta);
  launch(args, work, pass, weight);
}

}  // namespace

void forward(const SoftmaxCrossEntropy& loss, const LayerWork& work, const Pass& pass) {
  const Tensor &logits = *work.inputs[0], &labels = *work.inputs[1];
  CrossEntropyArgs args{};
  args.logits = logits.at, args.logits_type = logits.type;
  args.labels = reinterpret_cast<const std::int32_t*>(labels.at);
  args.count_rows = pass.rows * labels.width();
  args.classes = static_cast<std::uint32_t>(logits.width() / labels.width()), args.ignore = loss.ignore;
  args.weight = static_cast<float>(loss.weight), args.smoothing = static_cast<float>(loss.smoothing);
  launch(args, work, pass, static_cast<double>(args.weight));
}

void forward(const SmoothL1& loss, const LayerWork& work, const Pass& pass) {
  number_loss_of(work, pass, loss.weight, loss.beta);
}
void forward(const SigmoidCrossEntropy& loss, const LayerWork& work, const Pass& pass) {
  number_loss_of(work, pass, loss.weight, 0);
}

}  // namespace troupe::cuda
